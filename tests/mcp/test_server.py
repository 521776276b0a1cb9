"""The server over stdio with the official client, on real jobs on the CPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from jsonschema import Draft202012Validator

TEXT = """\
import torch
from torch import nn


# kernel-assistant: inputs=(torch.randn(64, 512),)
class Net(nn.Module):
    def forward(self, x):
        return torch.tanh(x.exp() + 1) * 2 - x


if __name__ == "__main__":
    net = Net()
    for _ in range(3):
        net(torch.randn(64, 64))
    print("done")
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_text(TEXT)
    return path


def answered(result: Any) -> dict[str, Any]:
    assert not result.is_error, result.content[0].text
    assert result.structured_content is not None
    found: dict[str, Any] = result.structured_content
    return found


def refused(result: Any) -> str:
    assert result.is_error
    return str(result.content[0].text)


def test_tools_are_told_strictly(agent) -> None:
    async def talk(client):
        return client.server_info, client.instructions, (await client.list_tools()).tools

    info, instructions, tools = agent(talk)
    assert info.name == "kernel-assistant" and "optimize" in instructions
    names = "hints scan draft profile verify optimize result jobs cancel confirm apply undo check export".split()
    assert [tool.name for tool in tools] == names
    for tool in tools:
        Draft202012Validator.check_schema(tool.input_schema)
        assert tool.input_schema["type"] == "object" and tool.input_schema["additionalProperties"] is False
        assert tool.description and "$ref" not in str(tool.input_schema)
    by_name = {tool.name: tool for tool in tools}
    assert by_name["apply"].annotations.destructive_hint and not by_name["hints"].annotations.destructive_hint
    assert by_name["optimize"].input_schema["required"] == ["module"]


def test_what_does_not_fit_is_an_answer(agent, module: Path) -> None:
    takes = "optimize takes module (required), target, budget_seconds, policy, numerics, inputs, wait"
    asked = [
        ("optimize", {}, "missing required field `module`"),
        ("optimize", {"module": str(module), "budget": 3}, "unknown field `budget`"),
        ("optimize", {"module": str(module), "budget": 3}, takes),
        ("optimize", {"module": str(module), "budget_seconds": "long"}, "budget_seconds"),
        ("optimize", {"module": str(module), "target": "tpu"}, "target"),
        ("optimize", {"module": "/no/such.py"}, "/no/such.py does not exist"),
        ("optimize", {"module": "/no/such.py"}, "next: "),
        ("result", {"job": 999999}, "no job '999999'"),
        ("apply", {"what": str(module)}, "there is no job for"),
        ("export", {"what": 999999, "form": "package", "folder": "kept"}, "no job '999999'"),
        ("check", {}, "no applied kernels at or below ."),
        ("nothing", {}, "there is no tool"),
    ]

    async def talk(client):
        told = [refused(await client.call_tool(name, arguments)) for name, arguments, _ in asked]
        return told, answered(await client.call_tool("jobs", {"limit": 1}))

    told, alive = agent(talk)
    assert all(words in line for (_, _, words), line in zip(asked, told, strict=True)), told
    assert alive["jobs"] is not None


def test_hints_lines_and_drafts_of_inputs(agent, module: Path) -> None:
    bare = module.with_name("bare.py")
    bare.write_text(TEXT.replace("# kernel-assistant", "# nothing"))
    told: list[tuple[float, str]] = []

    async def progress(value: float, total: float | None, message: str | None) -> None:
        told.append((value, message or ""))

    async def talk(client):
        hints = answered(await client.call_tool("hints", {"path": "net.py"}))
        asked = {"module": f"{module}:Net", "target": "cpu"}
        lines = answered(await client.call_tool("profile", asked, progress_callback=progress))
        return hints, lines, answered(await client.call_tool("draft", {"module": f"{bare}:Net"}))

    hints, lines, drafted = agent(talk)
    assert drafted["class"] == "Net" and "kernel-assistant: inputs=" in drafted["text"]
    assert [(hint["code"], hint["class"], hint["line"]) for hint in hints["hints"]] == [("KA002", "Net", 8)]
    assert lines["outcome"] == "profiled"
    assert [(row["line"], row["share"]) for row in lines["lines"]["lines"]] == [(8, pytest.approx(1.0))]
    assert any("timing the lines" in message for _, message in told)
    assert [value for value, _ in told] == sorted(value for value, _ in told)


def test_scan_runs_the_program(agent, module: Path) -> None:
    async def talk(client):
        bad = refused(await client.call_tool("scan", {"command": ["false"]}))
        found = answered(await client.call_tool("scan", {"command": [sys.executable, "net.py"], "top": 3}))
        return bad, found

    bad, found = agent(talk)
    assert "no Python that could be recorded" in bad
    assert found["exit_code"] == 0 and [row["name"] for row in found["classes"]] == ["Net"]


def test_cancelling_a_scan_ends_the_program(agent, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    program = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(600)"

    async def read(path: Path) -> str:
        return await anyio.Path(path).read_text() if await anyio.Path(path).exists() else ""

    async def talk(client):
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "scan", {"command": [sys.executable, "-c", program]})
            with anyio.fail_after(60):
                while not (await read(mark)):  # noqa: ASYNC110 - another process writes it
                    await anyio.sleep(0.05)
            group.cancel_scope.cancel()
        pid = int(await read(mark))
        with anyio.fail_after(30):
            while await anyio.Path(f"/proc/{pid}").exists():  # noqa: ASYNC110 - another process
                await anyio.sleep(0.05)
        return answered(await client.call_tool("jobs", {}))

    assert "jobs" in agent(talk)


@pytest.mark.slow
def test_optimize_result_apply_and_undo(agent, module: Path) -> None:
    told: list[str] = []

    async def progress(value: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    async def talk(client):
        call = client.call_tool
        asked = {"module": str(module), "target": "cpu", "budget_seconds": 60}
        found = answered(await call("optimize", asked, progress_callback=progress))
        again = answered(await call("result", {"job": found["job"], "sources": True}))
        begun = answered(await call("confirm", {"job": int(found["job"]), "wait": False}))
        assert begun["job"] != found["job"]
        await call("cancel", {"job": begun["job"]})
        plan = {"what": int(found["job"]), "force": True}
        shown = answered(await call("apply", {**plan, "dry_run": True}))
        untouched = await anyio.Path(module).read_text()
        applied = answered(await call("apply", plan))
        edited = await anyio.Path(module).read_text()
        checked = answered(await call("check", {"path": str(module), "timing": False}))
        assert [one["status"] for one in checked["classes"]] == ["ok"] and checked["passes"]
        kept = {"what": int(found["job"]), "form": "kernelbench", "folder": str(module.with_name("kept"))}
        exported = answered(await call("export", kept))
        assert all([await anyio.Path(one).is_file() for one in exported["files"]])
        undone = answered(await call("undo", {"what": str(module)}))
        # As for a class of an installed library: another file imports the kernels.
        program = anyio.Path(module.with_name("program.py"))
        await program.write_text("import net\n")
        outside = answered(await call("apply", {**plan, "into": str(program)}))
        assert outside["path"] == str(program) and "kernels_for_net" in await program.read_text()
        assert await anyio.Path(module).read_text() == TEXT
        assert answered(await call("undo", {"what": str(program)}))["classes"] == ["Net"]
        assert await program.read_text() == "import net\n"
        return found, again, shown, untouched, applied, edited, undone

    found, again, shown, untouched, applied, edited, undone = agent(talk)
    assert found["outcome"] in ("improved", "no_measurable_gain", "inconclusive")
    assert found["best"]["error_over_pytorchs"] >= 0 and found["over_torch_compile"] != "unknown"
    assert found["evaluation"]["outcome"] == "correct" and any(message.startswith("turn ") for message in told)
    assert again["state"] == "done" and again["sources"]
    assert untouched == TEXT and shown["diff"] == applied["diff"]
    assert "_with_kernels" in edited and undone["restored"] and module.read_text() == TEXT


@pytest.mark.programs
@pytest.mark.slow
def test_every_configuration_of_a_scanned_class_gets_a_job(agent, module: Path) -> None:
    module.write_text(
        TEXT.replace("# kernel-assistant", "# nothing").replace("def forward(self, x)", "def forward(self, x, y=None)")
        .replace("net(torch.randn(64, 64))", "net(torch.randn(64, 64)), net(torch.randn(8, 64), torch.ones(2))")
        .replace("net = Net()", "net = Net().eval()\n    torch.set_grad_enabled(False)")
    )  # fmt: skip

    async def talk(client):
        call = client.call_tool
        scanned = answered(await call("scan", {"command": [sys.executable, "net.py"]}))
        asked = {"module": f"{module}:Net", "target": "cpu", "budget_seconds": 400}
        begun = answered(await call("optimize", {**asked, "budget_seconds": 300, "wait": False}))
        for job in begun["jobs"]:
            await call("cancel", {"job": int(job)})
        found = answered(await call("optimize", asked))
        assert not any(part["failure"] for part in found["configurations"]), found
        applied = answered(await call("apply", {"what": f"{scanned['id']}:Net", "force": True}))
        return begun, found, applied, answered(await call("undo", {"what": str(module)}))

    begun, found, applied, undone = agent(talk)
    assert len(begun["jobs"]) == 2 and begun["job"] == begun["jobs"][0]
    assert [part["calls"] for part in found["configurations"]] == [3, 3] and found["calls"] == 6
    assert applied["jobs"] == [part["job"] for part in found["configurations"]]
    assert undone["restored"]


def test_verify_judges_a_candidate_of_the_agents_own(agent, module: Path) -> None:
    candidate = module.with_name("candidate.py")
    candidate.write_text(TEXT.replace("Net", "ModelNew"))

    async def talk(client):
        asked = {"candidate": str(candidate), "reference": f"{module}:Net", "target": "cpu", "timing": False}
        return answered(await client.call_tool("verify", asked))

    found = agent(talk)
    assert found["outcome"] == "no_candidate"
    assert found["evaluation"]["outcome"] == "refused" and found["evaluation"]["message"]


def test_cancelling_the_call_cancels_the_job(agent, module: Path) -> None:
    async def talk(client):
        begun = anyio.Event()

        async def progress(value: float, total: float | None, message: str | None) -> None:
            begun.set()

        asked = {"module": str(module), "target": "cpu", "budget_seconds": 600}
        async with anyio.create_task_group() as group:

            async def call() -> None:
                await client.call_tool("optimize", asked, progress_callback=progress)

            group.start_soon(call)
            with anyio.fail_after(60):
                await begun.wait()
            group.cancel_scope.cancel()
        with anyio.fail_after(60):
            while True:
                (row,) = answered(await client.call_tool("jobs", {"limit": 1}))["jobs"]
                if row["state"] not in ("queued", "running"):
                    return row
                await anyio.sleep(0.2)

    assert agent(talk)["state"] == "cancelled"


def test_a_job_that_nobody_waits_for_goes_on(agent, module: Path) -> None:
    asked = {"module": str(module), "target": "cpu", "budget_seconds": 600, "wait": False}

    async def begin(client):
        return answered(await client.call_tool("optimize", asked))["job"]

    async def stop(client):
        before = answered(await client.call_tool("result", {"job": job}))
        await client.call_tool("cancel", {"job": job})
        return before, answered(await client.call_tool("result", {"job": job, "wait": True}))

    job = agent(begin)
    before, after = agent(stop)
    assert before["state"] in ("queued", "running") and after["outcome"] == "cancelled"
