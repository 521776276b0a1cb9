"""On a GPU: TF32 and CUDA graphs are measured and checked, and leave PyTorch's settings as they were."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernel_assistant.records import FreeWin
from kernel_assistant.worker.free_wins.free_wins import FreeWins
from tests.worker.opened import module_text
from tests.worker.test_free_wins import measured

pytestmark = pytest.mark.gpu

PRODUCT = module_text("return torch.relu(self.proj(x))", "torch.randn(1024, 1024)", "self.proj = nn.Linear(1024, 1024)")
CHAIN = module_text("for _ in range(4):\n    x = torch.softmax(x, -1) @ x\nreturn x", "torch.randn(64, 64)")
CONVOLUTION = module_text(
    "return torch.relu(self.conv(x))", "torch.randn(4, 16, 32, 32)", "self.conv = nn.Conv2d(16, 32, 3, padding=1)"
)
ATTENTION = module_text(
    """scores = (q @ k.transpose(-2, -1)) * 64 ** -0.5
scores = scores.masked_fill(torch.ones(256, 256, device=q.device).triu(1) == 1, float("-inf"))
return torch.softmax(scores, -1) @ v""",
    "*(torch.randn(2, 4, 256, 64, dtype=torch.bfloat16) for _ in range(3))",
    arguments="q, k, v",
)

Measurer = Callable[..., FreeWins]


def measure(wins: FreeWins, *names: str) -> FreeWin:
    return measured(wins.measure(names, 60.0))


def settings() -> tuple[object, ...]:
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize(("numerics", "passes"), [("kernelbench", False), ("paper", True)])
def test_tf32_changes_results_where_the_policy_says_so(measurer: Measurer, numerics: str, passes: bool) -> None:
    before = settings()
    wins = measurer(PRODUCT, "cuda", numerics)
    assert wins.changes["tf32"].write == 'torch.set_float32_matmul_precision("high")'
    plain, win = measure(wins, "compile"), measure(wins, "tf32")
    assert plain.passes and plain.measured
    assert win.measured and win.passes is passes and (win.note == "changes results") is not passes
    assert win.error_ratio is not None and plain.error_ratio is not None and win.error_ratio > 10 * plain.error_ratio
    assert settings() == before


def test_tf32_is_not_offered_where_it_is_on_or_changes_nothing(measurer: Measurer) -> None:
    assert torch.backends.cudnn.allow_tf32, "PyTorch's default"
    assert "tf32" not in measurer(CONVOLUTION, "cuda").changes
    assert "tf32" not in measurer(ATTENTION, "cuda").changes


def test_cuda_graphs_replay_the_right_values(measurer: Measurer) -> None:
    wins = measurer(CHAIN, "cuda")
    win = measure(wins, "cuda_graphs")
    assert win.passes and win.measured and "clone" in win.note
    assert measure(wins, "compile").measured, "the baseline runs on after the graphs are gone"


def test_together(measurer: Measurer) -> None:
    before = settings()
    win = measure(measurer(CHAIN, "cuda", "paper"), "tf32", "cuda_graphs")
    assert (win.name, win.write) == ("together", "tf32 + cuda_graphs")
    assert win.measured and win.passes
    assert settings() == before


def test_channels_last(measurer: Measurer, monkeypatch: pytest.MonkeyPatch) -> None:
    # With PyTorch's default the other layout takes another algorithm, in TF32.
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    win = measure(measurer(CONVOLUTION, "cuda"), "channels_last")
    assert win.passes and win.measured


def test_causal_attention_becomes_one_operator(measurer: Measurer) -> None:
    wins = measurer(ATTENTION, "cuda")
    assert "is_causal=True" in wins.changes["fused_attention"].write
    win = measure(wins, "fused_attention")
    assert win.passes and win.measured
