"""A class without declared inputs, from its first lens to the times of its lines, with real jobs."""

from __future__ import annotations

import asyncio
import json

import psutil
import pytest
from lsprotocol import types

from tests.lsp.editor import until

pytestmark = [pytest.mark.programs, pytest.mark.asyncio, pytest.mark.slow]

PROGRAM = """
import torch
from bare import Gate

if __name__ == "__main__":
    gate = Gate().eval()
    with torch.no_grad():
        for _ in range(5):
            gate(torch.randn(64, 512))
"""


@pytest.fixture
def path(workspace, model):
    """A file of Gate without inputs."""
    path = workspace / "bare.py"
    path.write_text(model.read_text().partition("def get_inputs")[0])
    return path


async def test_inputs_recorded_from_a_program_serve_a_profile_of_what_is_typed(start_editor, workspace, path):
    (workspace / "program.py").write_text(PROGRAM)
    editor = await start_editor(shows=path)
    assert (await editor.command("profile", path, "Gate"))["needs"] == "inputs"
    asked = await editor.command("inputs", path, "Gate", how="record")
    assert asked["needs"] == "program" and asked["choices"][0]["title"] == "python bare.py"
    scan = await editor.command("inputs", path, "Gate", how="record", program=["python", "program.py"])
    assert scan["scan"] == "1" and scan["classes"][0]["name"] == "Gate"

    editor.type(path, "return torch", "y = torch.tanh(x)\n        return y + torch")
    job = (await editor.command("profile", path, "Gate"))["job"]
    assert (await editor.until_job(job, "finished", "failed"))["outcome"] == "profiled"
    line = editor.text(path)[: editor.text(path).index("y = torch")].count("\n")
    document = types.TextDocumentIdentifier(uri=path.as_uri())
    everything = types.Range(types.Position(0, 0), types.Position(99, 0))
    asked = types.InlayHintParams(document, everything)
    hints = await until(lambda: editor.client.text_document_inlay_hint_async(asked))
    assert line in [hint.position.line for hint in hints]
    params = types.HoverParams(text_document=document, position=types.Position(line, 10))
    assert "a forward" in (await editor.client.text_document_hover_async(params)).contents.value


ENDLESS = PROGRAM.replace("for _ in range(5):", "while True:").replace(
    "if __name__",
    """
import os
open("pid", "w").write(str(os.getpid()))
if __name__""",
)


async def test_a_recording_that_is_cancelled_ends_the_program_and_keeps_what_was_called(
    start_editor, workspace, path, settings
):
    (workspace / "endless.py").write_text(ENDLESS)
    # What a hostile folder would like to have started.
    (workspace / "kernel_assistant.py").write_text("raise SystemExit('not this one')")
    editor = await start_editor(shows=path)
    record = editor.command("inputs", path, "Gate", how="record", program=["python", "endless.py"])
    recording = asyncio.create_task(record)
    while not any(json.loads(one.read_bytes())["calls"] for one in settings.state_dir.rglob("recording.json")):
        assert not recording.done(), await recording
        await asyncio.sleep(0.1)
    (number,) = editor.client.protocol._request_futures
    editor.client.cancel_request(types.CancelParams(id=number))
    scan = await asyncio.wait_for(recording, 60)
    assert scan["classes"][0]["name"] == "Gate" and scan["ended"] == "running"
    assert not psutil.pid_exists(int((workspace / "pid").read_text()))
    assert (await editor.command("profile", path, "Gate"))["job"]


async def test_inputs_of_a_class_that_ranks_low_are_kept_too(start_editor, workspace):
    """If a user asks for the inputs of a class in an editor, they are kept even if the class ranks low."""
    body = "(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n\n\n"
    many = "".join(f"class Part{number}{body}" for number in range(30))
    calls = (
        "if __name__ == '__main__':\n    for number in range(30):\n        globals()[f'Part{number}']()(torch.ones(2))"
    )
    path = workspace / "many.py"
    path.write_text(f"import torch\n\n\n{many}{calls}")
    editor = await start_editor()
    found = await editor.command("inputs", path, "Part29", how="record", program=["python", "many.py"])
    assert len(found["classes"]) == 30 and all(row["folder"] for row in found["classes"])
