"""`kernel-assistant scan`, from the command to tasks that open, and its messages if there is nothing to scan."""

from __future__ import annotations

import sys

import pytest
import torch

from kernel_assistant.errors import UsageError
from kernel_assistant.records import InputSource, ProgramMode, to_builtins
from kernel_assistant.session.prepare import prepare, prepare_scanned
from kernel_assistant.session.scanning.scan import _drop_old
from kernel_assistant.store.scans import ScanStore
from kernel_assistant.worker.opening.open_task import open_task
from tests.common.caches import FAST
from tests.scan.programs import SCRIPT, package

ENCODER = """
import torch

torch.manual_seed(0)
net = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2).eval()
with torch.no_grad():
    for _ in range(2):
        net(torch.randn(2, 8, 32))
"""


def opened(task):
    return open_task(to_builtins(task), "cpu")


def test_a_script_is_ranked_and_its_class_opens_from_the_recording(write, run, scan, settings):
    path = write("net.py", SCRIPT)
    found = scan(sys.executable, "net.py")
    rows = {row["name"]: row for row in found["classes"]}
    assert set(rows) == {"Net", "Norm"}
    assert (rows["Norm"]["path"], rows["Norm"]["line"], rows["Norm"]["calls"]) == (str(path), 6, 3)
    # What remains is the container's own.
    assert 0 < sum(row["share_seconds"] for row in rows.values()) < found["modules_seconds"]
    assert found["exit_code"] == 0 and found["comparison"] is None and found["bandwidth"] == FAST
    assert (found["loop"], found["rounds"]) == ("Net", 2) and found["startup_seconds"] > 0
    assert found["counted_runs"] == [found["loop_seconds"]] and found["loop_seconds"] < found["calls_seconds"]
    for row in rows.values():
        assert 1 <= row["speedup_at_double"] <= row["speedup_at_floor"]

    task, options = prepare(f"{path}:Norm", settings)
    assert task.source is InputSource.recorded and options.python == sys.executable and not task.installed
    # The one that took more time comes first, whichever that was.
    numbers = [sample["number"] for sample in rows["Norm"]["samples"]]
    assert sorted(numbers) == [0, 1]
    assert [workload.args for workload in task.workloads] == [f"recorded({number})[0]" for number in numbers]
    model = opened(task)
    assert model.model.eps == 1e-5 and model.dims == model.workload_dims[0]
    assert sorted(dims["B"] for dims in model.workload_dims) == [8, 16]
    args, kwargs = model.inputs(0, 42)
    assert kwargs == {"scale": 2.0} and args[0].abs().max() > 0


CACHES = """
import torch
from torch import nn

class Cache:
    def __init__(self):
        self.values = []

class Attend(nn.Module):
    def forward(self, x, past=None, more=()):
        return torch.sigmoid(x) * 2

class Sum(nn.Module):
    def forward(self, x, past=None):
        return torch.tanh(x) + 1

if __name__ == "__main__":
    attend, total, x = Attend(), Sum(), torch.randn(256, 64)
    with torch.no_grad():
        for _ in range(3):
            attend(x, Cache(), more=[{"box": Cache()}])
            total(x, Cache())
        total(x)
"""


@pytest.mark.programs
def test_an_object_among_the_arguments_is_named_in_the_table(write, run, scan):
    write("net.py", CACHES)
    rows = {row["name"]: row for row in scan(sys.executable, "net.py")["classes"]}
    assert rows["Attend"]["objects"] == ["past is a Cache", "more[0]['box'] is a Cache"]
    assert rows["Attend"]["problem"].startswith("past is a Cache, more[0]['box'] is a Cache: scan it called without")
    # The call without is what is opened.
    assert (rows["Sum"]["objects"], rows["Sum"]["problem"]) == (["past is a Cache"], "")
    shown = run("scan", "--", sys.executable, "net.py").stdout
    assert "past is a Cache, more[0]['box'] is a Cache: scan it called without" in shown
    assert "some calls are left out: past is a Cache" in shown and shown.rstrip().endswith(":Sum")


@pytest.mark.programs
@pytest.mark.slow
def test_a_package_with_configs_nested_inputs_ties_and_buffers_opens(write, scan, settings):
    package(write)
    found = scan(sys.executable, "-m", "pkg", code=7)
    assert found["exit_code"] == 7
    gate = opened(prepare_scanned("last:Gate", settings)[0])
    assert gate.model.config.width == 64 and "shift" in dict(gate.model.named_buffers())
    assert gate.facts["result"] == {"dict": {"out": {"output": 0}, "more": {"tuple": [{"output": 1}, {"value": None}]}}}
    _, kwargs = gate.inputs(0, 1)
    assert kwargs["extras"]["masks"][0].dtype == torch.bool and kwargs["extras"]["masks"][1] == 3
    whole = opened(prepare_scanned(f"{found['id']}:pkg.model.Model", settings)[0])
    assert whole.model.encode.weight is whole.model.decode.weight


@pytest.mark.programs
@pytest.mark.slow
def test_a_class_of_an_installed_package_is_itself(write, scan, settings):
    scan(sys.executable, write("encode.py", ENCODER))
    task, _ = prepare_scanned("last:TransformerEncoderLayer", settings)
    assert task.installed and task.module_name == "torch.nn.modules.transformer"
    assert type(opened(task).model) is torch.nn.TransformerEncoderLayer


@pytest.mark.programs
@pytest.mark.slow
def test_a_module_that_does_not_pickle_is_built_from_its_arguments(write, scan, settings):
    text = SCRIPT.replace("self.eps = eps\n", "self.eps = eps\n        self.hook = lambda: None\n")
    for part in ("Net().eval()", "torch.randn(rows, 64)"):
        text = text.replace(part, f"{part}.double()")
    found = scan(sys.executable, write("net.py", text))
    model = opened(prepare_scanned("last:Norm", settings)[0]).model
    assert (model.eps, model.weight.shape, model.weight.dtype) == (1e-5, (64,), torch.float64)
    (whole,) = [row for row in found["classes"] if row["name"] == "Net"]
    assert whole["folder"]


@pytest.mark.programs
@pytest.mark.slow
def test_instances_of_other_sizes_are_configurations_of_their_own(write, scan, run, settings):
    more = "\n    wide = [Norm(width).eval() for width in (96, 32)]\n"
    text = SCRIPT.replace("net = Net().eval()\n", f"net = Net().eval(){more}")
    more = "\n            wide[0](torch.randn(5, 96)), wide[1](torch.randn(5, 32))\n"
    write("net.py", text.replace("y = net(torch.randn(rows, 64))\n", f"y = net(torch.randn(rows, 64)){more}"))
    found = scan(sys.executable, "net.py")
    (row,) = [row for row in found["classes"] if row["name"] == "Norm"]
    assert len(row["more"]) == 2 and row["more"][0]["seconds"] >= row["more"][1]["seconds"]
    names = ["last:Norm", "last:Norm#2", "last:Norm#3"]
    widths = [opened(prepare_scanned(name, settings)[0]).model.weight.shape[0] for name in names]
    assert sorted(widths) == [32, 64, 96]
    refused = run("optimize", "--scan", "last:Norm#4")
    assert refused.returncode == 2 and "Norm#4 is none of its configurations" in refused.stderr
    assert "3 configurations, #1 to #3" in run("scan", "--", sys.executable, "net.py").stdout


@pytest.mark.programs
@pytest.mark.slow
def test_pytest_is_a_program_too(write, scan, settings):
    write("net.py", SCRIPT)
    write(
        "test_net.py",
        "import torch\nfrom net import Norm\n\n\ndef test_norm():\n"
        "    assert Norm(8).eval()(torch.ones(4, 8), torch.ones(4, 8))[0].shape == (4, 8)\n",
    )
    found = scan(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_net.py")
    assert [(row["name"], row["module"]) for row in found["classes"]] == [("Norm", "net")]
    assert list(found["classes"][0]["unserved_seconds"]) == ["gradient"]
    assert found["classes"][0]["speedup_at_floor"] == pytest.approx(1.0)
    assert opened(prepare_scanned("last:Norm", settings)[0]).facts["result"]["tuple"]


@pytest.mark.programs
@pytest.mark.slow
def test_ctrl_c_ends_the_program_and_leaves_its_scan(write, scan):
    end = "    import os, signal, time\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(60)\n"
    found = scan(sys.executable, write("net.py", SCRIPT + end), code=130)
    assert {row["name"]: row["calls"] for row in found["classes"]} == {"Net": 3, "Norm": 3}


@pytest.mark.programs
@pytest.mark.slow
def test_the_table_for_people(write, run):
    write("net.py", SCRIPT)
    done = run("scan", "--top", "1", "--repeat", "2", "--", sys.executable, "net.py")
    assert done.returncode == 0, done.stderr
    printed, table = done.stdout.split("\nscan 1: ")
    assert len(printed.splitlines()) == 2
    assert "≤ " in table and "and 1 more (--top 2)" in table
    assert "next: kernel-assistant optimize --scan 1:" in table


@pytest.mark.programs
@pytest.mark.slow
def test_the_next_step_names_the_module_where_two_classes_have_the_name(write, run, settings):
    write("other.py", SCRIPT)
    more = "    import other\n    with torch.no_grad():\n        other.Net().eval()(torch.randn(8, 64))\n"
    write("net.py", SCRIPT + more)
    proposed = run("scan", "--", sys.executable, "net.py").stdout.split()[-1]
    assert proposed.partition(".")[0] in ("1:__main__", "1:other")
    task, _ = prepare_scanned(proposed, settings)
    assert proposed.endswith(f".{task.class_name}")


@pytest.mark.programs
@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "cause"),
    [
        (("no-such-program",), "no-such-program is not a command"),
        (("true",), "the command started no Python that could be recorded"),
        ((sys.executable, "-I", "-c", "import torch"), "the command started no Python that could be recorded"),
        ((sys.executable, "-c", "pass"), "the program did not import torch"),
        ((sys.executable, "-c", "import torch"), "the program called no nn.Module that could be recorded"),
    ],
)
def test_nothing_to_scan_is_said_in_one_line(run, settings, command, cause):
    done = run("scan", "--", *command)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-2] == f"error: {cause}" and done.stderr.splitlines()[-1].startswith("next: ")
    assert not list((settings.state_dir / "scans").iterdir())


@pytest.mark.programs
@pytest.mark.slow
def test_old_scans_keep_their_figures_and_lose_their_files(write, scan, settings, monkeypatch):
    path = write("net.py", SCRIPT)
    for _ in range(2):
        scan(sys.executable, path)
    folder = settings.state_dir / "scans"
    monkeypatch.setattr("kernel_assistant.session.scanning.scan.KEPT_SCANS", 1)
    _drop_old(folder / "2")
    assert not list((folder / "1").iterdir()) and list((folder / "2").iterdir())
    with pytest.raises(UsageError, match="what scan 1 kept of Norm is gone"):
        prepare_scanned("1:Norm", settings)
    assert prepare_scanned("2:Norm", settings)


@pytest.mark.programs
def test_a_script_without_a_guard_is_not_run_again(write, scan, settings):
    text = SCRIPT.replace('if __name__ == "__main__":', "if True:")
    scan(sys.executable, write("net.py", text))
    with pytest.raises(UsageError, match="runs its program whenever it is imported"):
        prepare_scanned("last:Norm", settings)


@pytest.mark.programs
def test_unknown_scans_and_classes(write, scan, run, settings):
    scan(sys.executable, write("net.py", SCRIPT))
    for spec, cause in [("9:Net", "no scan '9'"), ("last:Nat", "scan 1 saw no class Nat"), ("1", "'1' names no class")]:
        with pytest.raises(UsageError, match=cause):
            prepare_scanned(spec, settings)
    assert run("optimize", "net.py", "--scan", "1:Net").returncode == 2
    assert run("optimize").returncode == 2


@pytest.mark.programs
def test_declared_inputs_win_unless_recorded_ones_are_asked_for(write, scan, settings):
    path = write("net.py", SCRIPT)
    scan(sys.executable, path)
    comment = "# kernel-assistant: inputs=(torch.ones(2, 64),) init=(64,)\n"
    path.write_text(SCRIPT.replace("class Norm", f"{comment}class Norm"))
    assert prepare(f"{path}:Norm", settings)[0].source is InputSource.comment
    assert prepare(f"{path}:Norm", settings, inputs="recorded")[0].source is InputSource.recorded
    with pytest.raises(UsageError, match="no inputs are declared for Net"):
        prepare(f"{path}:Net", settings, inputs="declared")
    with pytest.raises(UsageError, match="no scan kept inputs"):
        prepare(f"{path}:Nothing", settings, inputs="recorded")


def test_a_class_without_inputs_is_refused_with_a_draft(write, run):
    path = write("net.py", SCRIPT)
    done = run("optimize", f"{path}:Norm")
    assert done.returncode == 2
    assert "# kernel-assistant: inputs=(torch.randn(8, 128, 64),) init=(64, 1e-05)" in done.stderr
    assert done.stderr.splitlines()[-2].endswith("no inputs are declared for Norm")
    assert not done.stdout


@pytest.mark.programs
@pytest.mark.slow
def test_how_a_program_runs_its_classes_is_known_afterwards(write, run, settings):
    path = write("net.py", SCRIPT.replace("net = Net().eval()", "net = torch.compile(Net().eval(), backend='eager')"))
    done = run("scan", "--", sys.executable, path)
    # Nothing can be recorded of it, but that it compiles is worth knowing.
    assert done.returncode == 2 and "eagerly" in done.stderr
    scans = ScanStore(settings.state_dir)
    assert scans.program_of(str(path), "Norm") is ProgramMode.compiled
    assert scans.program_of(str(path), "Other") is ProgramMode.unknown
    scans.note_program(eager=[f"{path}:Norm"], compiled=[f"{path}:Norm"])
    assert scans.program_of(str(path), "Norm") is ProgramMode.eager
    scans.note_program(eager=[], compiled=[], scripted=[f"{path}:Norm"])
    assert scans.program_of(str(path), "Norm") is ProgramMode.scripted
    scans.note_program(eager=[], compiled=[f"{path}:Norm"], scripted=[f"{path}:Norm"])
    assert scans.program_of(str(path), "Norm") is ProgramMode.compiled
    scans.close()
