"""Values of an edited file against the original's: two right roundings may differ where a module magnifies rounding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kernel_assistant.worker.applied_checks.applied_timing import ParentModule, _parents_exact, same_values
from tests.worker.opened import module_text, open_text

#: Of a constant row a norm divides rounding noise by the square root of its epsilon.
NOISE = module_text(
    "return (x - x.mean(-1, keepdim=True)) * FACTOR", "torch.full((8, 1000), 0.1) * torch.arange(1, 9).unsqueeze(1)"
)


class InAnotherOrder(torch.nn.Module):
    """The same computation with sums of the reversed row, or of `wrong` plus that."""

    def __init__(self, factor: float, wrong: float = 0.0) -> None:
        super().__init__()
        self.factor, self.wrong = factor, wrong

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.double().mean(-1, keepdim=True).float()
        return (x - mean) * self.factor + self.wrong


@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in a parent"])
def test_a_result_within_pytorchs_own_error_is_right_and_one_beyond_is_not(tmp_path: Path, inside: bool) -> None:
    task = open_text(tmp_path, NOISE.replace("FACTOR", "1e8"))
    call = task.inputs(0, 7)
    theirs = task.call(*call)[0]
    exact = task.call64(*call)[0]
    error = float((theirs.double() - exact).abs().max())
    assert error > 0.1, "eager is far from float64 here"

    def judged(model: torch.nn.Module) -> bool:
        fields: dict[str, Any] = {"exact": _parents_exact} if inside else {}
        pair = (task.model, model)
        return same_values(task, *(ParentModule(one) if inside else one for one in pair), call, **fields)

    assert judged(InAnotherOrder(1e8))
    assert not judged(InAnotherOrder(1e8, wrong=5 * error))
    assert not judged(InAnotherOrder(1.5e6, wrong=5 * error))


def test_where_nothing_is_magnified_a_hundredth_is_enough_as_before(tmp_path: Path) -> None:
    task = open_text(tmp_path, NOISE.replace("FACTOR", "1.0"))
    call = task.inputs(0, 7)
    assert same_values(task, task.model, InAnotherOrder(1.0), call)
    assert not same_values(task, task.model, InAnotherOrder(1.0, wrong=0.1), call)
