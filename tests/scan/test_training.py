"""A module in training mode: its kernels update its buffers as PyTorch would. Everything is real."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.timed, pytest.mark.slow]

MODULE = """
import torch
from torch import nn

class Tail(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels, momentum=0.2)

    def forward(self, x):
        return torch.relu(self.norm(x))
"""

#: Calls in training mode: so many that it is what takes the time, and not the one of evaluation, on any machine.
TRAINED = 40
#: Statistics are gathered anew, as after averaging weights: training mode without gradients.
PROGRAM = f"""
import json, torch
from tail import Tail

torch.manual_seed(1)
module = Tail(8).train()
with torch.no_grad():
    outputs = [module(2 * torch.randn(4, 8, 15, 15) + 3) for _ in range({TRAINED})]
    module.eval()
    outputs.append(module(torch.randn(4, 8, 15, 15)))
    compiled = torch.compile(torch.nn.Sequential(module), backend="aot_eager").train()
    outputs.append(compiled(torch.randn(4, 8, 15, 15)))
held = {{name: value.tolist() for name, value in module.named_buffers()}}
print(json.dumps({{"held": held, "sums": [float(each.double().sum()) for each in outputs]}}))
"""
COUNTERS = "import tail_kernels\nprint(json.dumps(tail_kernels.counters()))\n"


def test_running_statistics_move_on(write, run, answer, scan, home, monkeypatch):
    monkeypatch.setenv("KERNEL_ASSISTANT_TURNS", "2")
    write("tail.py", MODULE)
    write("program.py", PROGRAM)
    scan(sys.executable, "program.py")
    before = _output(home)

    result = answer("optimize", "--scan", "last:Tail", "--json", "--budget", "60s", "--no-free-wins")
    assert result["best"] and "plan.json" in result["artifacts"], result

    applied = run("apply", "last", "--force")
    assert applied.returncode == 0, applied.stderr
    write("program.py", PROGRAM + COUNTERS)
    after, counted = _output(home)
    counts = counted["Tail"]
    # Training and evaluation have kernels each. Who serves the compiled call was measured, and may be either on a
    # machine that does other things.
    served = {} if counts["kernel"] > TRAINED + 1 else {"compiled: not served": 1}
    assert counts["kernel"] > TRAINED and counts["fallbacks"] == served, (counts, applied.stdout)
    (want,) = before
    assert after["held"]["norm.num_batches_tracked"] == want["held"]["norm.num_batches_tracked"] == TRAINED + 1
    for name in ("norm.running_mean", "norm.running_var"):
        assert after["held"][name] == pytest.approx(want["held"][name], rel=1e-5, abs=1e-6)
    assert after["sums"] == pytest.approx(want["sums"], rel=1e-4)
    assert run("undo", "last").returncode == 0
    assert (home / "tail.py").read_text() == MODULE


def _output(home):
    done = subprocess.run([sys.executable, "program.py"], cwd=home, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]
