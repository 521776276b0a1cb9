"""From a user's file to an applied kernel and back, and the Python call. Everything is real except for the author of
the kernel.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_assistant.records import Evaluation, JobOutcome, OptimizeResult, decode
from tests.common.modules import CHAIN
from tests.common.vendor import LAYERS, PROGRAM, installed

pytestmark = pytest.mark.slow


USE = """
import torch
from chain import Chain
module, x = Chain().eval(), torch.randn(32, 512)
want = x
for _ in range(12):
    want = torch.relu(want * 1.25 - 0.5) - 0.125
with torch.no_grad():
    print(torch.allclose(module(x), want, atol=1e-3))
"""

CALL = """
import kernel_assistant, torch, warnings
from chain import Chain

if __name__ == "__main__":
    module = Chain(12, scale=1.25).eval()
    told = []
    wanted = {"target": "cpu", "budget": 60, "policy": "generator", "progress": told.append}
    result = kernel_assistant.optimize(module, [torch.randn(32, 512)], **wanted)
    assert any(line.startswith("traced, ") for line in told) and any(line.startswith("turn 1: ") for line in told)
    from kernel_assistant.records import encode
    print(encode(result).decode())
    fast, x = kernel_assistant.accelerated(module, result, force=True), torch.randn(32, 512)
    with torch.no_grad():
        assert torch.allclose(fast(x), module(x), atol=1e-3)
    assert fast.kernel_counters()["Chain"] == {"kernel": 1, "fallbacks": {}}
    assert type(module) is Chain and isinstance(fast, Chain)

    def refused(**fields):
        try:
            kernel_assistant.accelerated(module, msgspec.structs.replace(result, **fields), force=bool(not fields))
        except UsageError as error:
            return error.cause

    from pathlib import Path
    import msgspec
    from kernel_assistant.errors import UsageError
    from kernel_assistant.records import JobOutcome, Offer
    none = {"outcome": JobOutcome.no_measurable_gain, "gain_over": "", "offer": Offer.none}
    assert "no gain was confirmed" in refused(**none)
    assert "no candidate to run: why" in refused(artifacts={}, why="why")
    path = Path("chain.py")
    text = path.read_text()
    path.write_text(text.replace("- 0.125", "- 0.25"))
    assert refused() == "Chain has changed since the job"
    path.write_text(text)
    Chain.forward = lambda self, x: x
    assert "Chain.forward is not the one of" in refused()
"""


def apply_and_use(run, home):
    """Applies the last job's kernels; the class still computes the same with them."""
    applied = run("apply", "last", "--force", "--json", code=0)
    assert json.loads(applied.stdout)["class"] == "Chain"
    used = subprocess.run([sys.executable, "-c", USE], cwd=home, capture_output=True, text=True, check=True)
    assert used.stdout == "True\n"


def test_optimize_apply_undo_verify(run, home, scripted):
    path = home / "chain.py"
    path.write_text(CHAIN)
    before = path.read_bytes()

    done = run("optimize", path, "--json", "--budget", "60s", "--python", sys.executable, code=0)
    result = decode(done.stdout, OptimizeResult)
    # On a machine as busy as a test machine may be, a gain can drown in noise; a kernel that is found must be right.
    assert result.outcome in (JobOutcome.improved, JobOutcome.no_measurable_gain, JobOutcome.inconclusive)
    assert result.best is not None and result.best.policy == "scripted"
    assert {"plan.json", "task.json", "graph.txt", "sources/chain.cpp", "trajectory.json"} <= set(result.artifacts)

    shown = run("show", "--source")
    assert "torch.compile" in shown.stdout and "by hand" in shown.stdout and 'extern "C" void chain' in shown.stdout

    apply_and_use(run, home)
    assert path.read_bytes() != before

    undone = run("undo", "--json")
    assert json.loads(undone.stdout)["restored"] and path.read_bytes() == before
    assert run("undo", "last").returncode == 2

    workspace = Path(result.artifacts["plan.json"]).parent
    verified = run("verify", workspace, "--json", "--python", sys.executable)
    assert verified.returncode == 0 and decode(verified.stdout, Evaluation).correct

    source = workspace / "sources" / "chain.cpp"
    source.write_text(source.read_text().replace("0.125f", "0.25f"))
    wrong = run("verify", workspace, "--python", sys.executable)
    assert wrong.returncode == 1 and wrong.stdout.startswith("not correct (incorrect at verify)")


@pytest.mark.timed
def test_the_python_call(run, home, scripted):
    (home / "chain.py").write_text(CHAIN)
    (home / "call.py").write_text(CALL)
    done = subprocess.run([sys.executable, "call.py"], cwd=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = decode(done.stdout, OptimizeResult)
    assert result.task == "chain.py:Chain"
    assert result.best is not None and result.free_wins
    apply_and_use(run, home)


@pytest.mark.timed
def test_the_python_call_takes_a_class_of_an_installed_library(run, home, python_path, monkeypatch):
    """The file is imported by its name, because it registers its definitions and must not be executed twice."""
    library, program = installed(home)
    (library.parent / "registry.py").write_text("known = set()\n")
    (library.parent / "__init__.py").write_text("from . import layers\n")
    twice = "\n\nif 'layers' in known:\n    raise ValueError('registered already')\nknown.add('layers')\n"
    library.write_text(f"from .registry import known\n{LAYERS}{twice}")
    monkeypatch.setenv("PYTHONPATH", f"{library.parents[1]}:{python_path}")
    call, *_ = CALL.replace("chain import Chain", "vendor.layers import Gate").partition("    fast, x =")
    call = call.replace("Chain(12, scale=1.25)", "Gate()")
    (home / "call.py").write_text(call.replace('"budget": 60', '"budget": 300'))
    environ = {**os.environ, "KERNEL_ASSISTANT_TURNS": "1", "KERNEL_ASSISTANT_FREE_WINS": "false"}
    done = subprocess.run([sys.executable, "call.py"], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    applied = run("apply", "last", "--force", "--into", program)
    assert applied.returncode == 0 and "kernels_for_vendor" in program.read_text(), applied.stderr
    use = "import main, torch, kernels_for_vendor as kernels; torch.set_grad_enabled(False)\n"
    use += "main.Gate().eval()(torch.ones(32, 512)); print(kernels.counters()['Gate']['kernel'])"
    ran = subprocess.run([sys.executable, "-c", use], capture_output=True, text=True, check=True)
    assert ran.stdout == "1\n", ran.stdout
    assert run("undo", program).returncode == 0 and program.read_text() == PROGRAM


@pytest.mark.timed
def test_a_gain_over_eager_alone_is_told_as_such_and_can_be_applied(run, home, scripted):
    """The kernel has one thread: on this number of rows it is slower than torch.compile, but much faster than eager
    PyTorch with its 48 passes over memory.
    """
    path = home / "chain.py"
    path.write_text(CHAIN.replace("torch.randn(32, 512)", "torch.randn(256, 512)"))
    done = run("optimize", path, "--json", "--budget", "60s", "--no-free-wins", "--python", sys.executable, code=0)
    result = json.loads(done.stdout)
    assert result["vs_compile"] != "faster" and result["outcome"] in ("no_measurable_gain", "inconclusive")
    before, applied = path.read_bytes(), run("apply", "last")
    if result["gain_over"] == "eager":
        assert "a gain where it runs the class without torch.compile" in applied.stderr
        assert applied.returncode == 0 and path.read_bytes() != before
        assert run("undo", path).returncode == 0 and path.read_bytes() == before
    else:  # other work on the machine hid the gain
        assert applied.returncode == 2 and "--force" in applied.stderr and path.read_bytes() == before
