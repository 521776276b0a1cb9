"""On a GPU: TF32 and CUDA graphs are measured and checked, and leave PyTorch's settings as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from kernel_assistant.records import FreeWin, to_builtins
from kernel_assistant.records.codec import from_builtins
from kernel_assistant.source import build_task
from kernel_assistant.worker.free_wins.free_wins import FreeWins
from kernel_assistant.worker.measuring.profiling import Profiler
from kernel_assistant.worker.measuring.roofline import Roofline
from kernel_assistant.worker.opening.open_task import open_task
from kernel_assistant.worker.verifying.cases import Case
from kernel_assistant.worker.verifying.verification import expect

pytestmark = pytest.mark.gpu

PRODUCT = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(1024, 1024)

    def forward(self, x):
        return torch.relu(self.proj(x))

def get_inputs():
    return [torch.randn(1024, 1024)]
"""

CHAIN = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        for _ in range(4):
            x = torch.softmax(x, -1) @ x
        return x

def get_inputs():
    return [torch.randn(64, 64)]
"""

CONVOLUTION = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(16, 32, 3, padding=1)

    def forward(self, x):
        return torch.relu(self.conv(x))

def get_inputs():
    return [torch.randn(4, 16, 32, 32)]
"""

ATTENTION = """
import torch

class Net(torch.nn.Module):
    def forward(self, q, k, v):
        scores = (q @ k.transpose(-2, -1)) * 64 ** -0.5
        scores = scores.masked_fill(torch.ones(256, 256, device=q.device).triu(1) == 1, float("-inf"))
        return torch.softmax(scores, -1) @ v

def get_inputs():
    return [torch.randn(2, 4, 256, 64, dtype=torch.bfloat16) for _ in range(3)]
"""

Measurer = Callable[..., FreeWins]


@pytest.fixture
def measurer(tmp_path: Path) -> Iterator[Measurer]:
    held: list[tuple[FreeWins, Profiler]] = []

    def make(text: str, numerics: str = "kernelbench") -> FreeWins:
        path = tmp_path / "net.py"
        path.write_text(text)
        task = open_task(to_builtins(build_task(str(path), target="cuda", numerics=numerics)), "cuda:0")
        base = expect(task, Case(0, "declared", None, 1))
        assert base is not None
        profiler = Profiler(task, base, Roofline(cache_bytes=1 << 20), "cuda")
        held.append((FreeWins(task, profiler, numerics), profiler))
        return held[-1][0]

    yield make
    for wins, profiler in held:
        wins.close()
        profiler.close()


def measure(wins: FreeWins, *names: str) -> FreeWin:
    row = wins.measure(names, 60.0)
    return from_builtins({key: value for key, value in row.items() if key != "compile_seconds"}, FreeWin)


def settings() -> tuple[object, ...]:
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize(("numerics", "passes"), [("kernelbench", False), ("paper", True)])
def test_tf32_changes_results_where_the_policy_says_so(measurer: Measurer, numerics: str, passes: bool) -> None:
    before = settings()
    wins = measurer(PRODUCT, numerics)
    assert wins.changes["tf32"].write == 'torch.set_float32_matmul_precision("high")'
    plain, win = measure(wins, "compile"), measure(wins, "tf32")
    assert plain.passes and plain.measured
    assert win.measured and win.passes is passes and (win.note == "changes results") is not passes
    assert win.error_ratio is not None and plain.error_ratio is not None and win.error_ratio > 10 * plain.error_ratio
    assert settings() == before


def test_tf32_is_not_offered_where_it_is_on_or_changes_nothing(measurer: Measurer) -> None:
    assert torch.backends.cudnn.allow_tf32, "PyTorch's default"
    assert "tf32" not in measurer(CONVOLUTION).changes
    assert "tf32" not in measurer(ATTENTION).changes


def test_cuda_graphs_replay_the_right_values(measurer: Measurer) -> None:
    wins = measurer(CHAIN)
    win = measure(wins, "cuda_graphs")
    assert win.passes and win.measured and "clone" in win.note
    assert measure(wins, "compile").measured, "the baseline runs on after the graphs are gone"


def test_together(measurer: Measurer) -> None:
    before = settings()
    win = measure(measurer(CHAIN, "paper"), "tf32", "cuda_graphs")
    assert (win.name, win.write) == ("together", "tf32 + cuda_graphs")
    assert win.measured and win.passes
    assert settings() == before


def test_channels_last(measurer: Measurer, monkeypatch: pytest.MonkeyPatch) -> None:
    # With PyTorch's default the other layout takes another algorithm, in TF32.
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    win = measure(measurer(CONVOLUTION), "channels_last")
    assert win.passes and win.measured


def test_causal_attention_becomes_one_operator(measurer: Measurer) -> None:
    wins = measurer(ATTENTION)
    assert "is_causal=True" in wins.changes["fused_attention"].write
    win = measure(wins, "fused_attention")
    assert win.passes and win.measured
