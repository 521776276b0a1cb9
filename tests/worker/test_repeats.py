"""Whether two runs of a module count as equal: the same bits, or a difference by rounding where nothing is random."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import ExportedProgram

from kernel_assistant.worker.opening.task_checks import check_repeats
from kernel_assistant.worker.process.worker_errors import TaskError


class Drops(nn.Module):
    """An attention that drops this share of what it has found."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=self.share)


def _attention(dropped: float) -> ExportedProgram:
    return torch.export.export(Drops(dropped), (torch.randn(1, 2, 8, 16),))


def _differs(dtype: torch.dtype, by: float) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    values = torch.linspace(-1, 1, 100, dtype=torch.float64)
    other = values.clone()
    other[70] += by
    return [values.to(dtype)], [other.to(dtype)]


@pytest.mark.parametrize(
    ("dtype", "by", "is_rounding"),
    [
        (torch.float32, 4e-7, True),
        (torch.float32, 1e-4, False),
        (torch.bfloat16, 2e-2, True),
        (torch.bfloat16, 2e-1, False),
        (torch.float16, 3e-3, True),
        (torch.float16, 2e-2, False),
    ],
)
def test_a_difference_is_rounding_or_not(dtype: torch.dtype, by: float, is_rounding: bool) -> None:
    first, second = _differs(dtype, by)
    program = _attention(0.0)
    assert check_repeats(first, first, "Model", program)
    if is_rounding:
        assert not check_repeats(first, second, "Model", program)
        return
    with pytest.raises(TaskError, match=r"gives different results for the same inputs$"):
        check_repeats(first, second, "Model", program)


def test_what_is_kept_or_not_known_is_no_rounding() -> None:
    first, second = _differs(torch.bfloat16, 2e-2)
    with pytest.raises(TaskError, match=r"each call changes self.hidden"):
        check_repeats(first, second, "Model", _attention(0.0), ["changes self.hidden"])
    with pytest.raises(TaskError, match="gives different results"):
        check_repeats(first, second, "Model", None)


@pytest.mark.parametrize(
    ("module", "x"),
    [
        (nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5)).eval(), torch.randn(2, 16)),
        (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval(), torch.randn(2, 5, 16)),
        (nn.LSTM(16, 8, 2, dropout=0.2).eval(), torch.randn(5, 2, 16)),
        (nn.RReLU().eval(), torch.randn(2, 16)),
    ],
    ids=["dropout", "encoder", "lstm", "rrelu"],
)
def test_what_would_draw_while_training_draws_nothing(module: nn.Module, x: torch.Tensor) -> None:
    first, second = _differs(torch.bfloat16, 2e-2)
    assert not check_repeats(first, second, "Model", torch.export.export(module, (x,)))


class Branches(nn.Module):
    """Draws in a branch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x + torch.rand_like(x), lambda x: x - 1, (x,))


def test_what_is_drawn_in_a_branch_is_found() -> None:
    first, second = _differs(torch.bfloat16, 2e-2)
    with pytest.raises(TaskError, match="draws random numbers"):
        check_repeats(first, second, "Branches", torch.export.export(Branches(), (torch.ones(3),)))


def test_what_is_drawn_at_random_is_no_rounding_where_the_difference_is_large() -> None:
    assert not check_repeats(*_differs(torch.float32, 4e-7), "Drops", _attention(0.5))
    first, second = _differs(torch.bfloat16, 2e-2)
    with pytest.raises(TaskError, match="it draws random numbers: scaled_dot_product_attention"):
        check_repeats(first, second, "Drops", _attention(0.5))
