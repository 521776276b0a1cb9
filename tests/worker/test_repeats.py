"""Whether two runs of a module count as equal: the same bits, or a difference by rounding where nothing is random."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from kernel_assistant.worker.opening.task_checks import check_repeats
from kernel_assistant.worker.process.worker_errors import TaskError


class Drops(nn.Module):
    """An attention that drops this share of what it has found."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=self.share)


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
    assert check_repeats(first, first, "Model", None)
    if is_rounding:
        assert not check_repeats(first, second, "Model", None)
        return
    with pytest.raises(TaskError, match=r"gives different results for the same inputs$"):
        check_repeats(first, second, "Model", None)


def test_what_is_drawn_at_random_is_no_rounding() -> None:
    first, second = _differs(torch.bfloat16, 2e-2)
    x = (torch.randn(1, 2, 8, 16),)
    assert not check_repeats(first, second, "Drops", torch.export.export(Drops(0.0), x))
    with pytest.raises(TaskError, match="it draws random numbers: scaled_dot_product_attention"):
        check_repeats(first, second, "Drops", torch.export.export(Drops(0.5), x))
