"""Numbers beside a half type, and the limits of `logit`, at values for which the two possible readings differ."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.schedule import make
from tests.generator.harness import Built, Function, export

pytestmark = pytest.mark.sampled(3)

Function1 = Callable[[torch.Tensor], torch.Tensor]
#: None of them is a number of a half type; two are above the nearest one that is, two below.
NUMBERS = (0.1, 0.3, 0.7, 1.3)
#: What eager PyTorch does with the number in its tensor's type.
ROUNDED: dict[str, Callable[[torch.Tensor, float], torch.Tensor]] = {
    "gt": lambda x, c: x > c,
    "ge": lambda x, c: x >= c,
    "lt": lambda x, c: x < c,
    "le": lambda x, c: x <= c,
    "eq": lambda x, c: x == c,
    "ne": lambda x, c: x != c,
    "beside": lambda x, c: c > x,
    "hardshrink": F.hardshrink,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
}
#: What it does with the number as it is, in float.
KEPT: dict[str, Callable[[torch.Tensor, float], torch.Tensor]] = {
    "floor_divide": torch.floor_divide,
    "div floor": lambda x, c: torch.div(x, c, rounding_mode="floor"),
    "div trunc": lambda x, c: torch.div(x, c, rounding_mode="trunc"),
}
LOGITS: dict[str, Function1] = {
    "logit": torch.logit,
    "logit eps": lambda x: torch.logit(x, 0.1),
    "logit zero": lambda x: torch.logit(x, 0.0),
    "logit beyond a half": lambda x: torch.logit(x, 0.6),
    "special": torch.special.logit,
    "special eps": lambda x: torch.special.logit(x, 1e-3),
}


def _around(number: float, dtype: torch.dtype) -> torch.Tensor:
    """The nearest values of `dtype` on both sides of the number and at it, with both signs, and their multiples."""
    at = torch.tensor(number, dtype=dtype)
    near = torch.stack([torch.nextafter(at, torch.tensor(way, dtype=dtype)) for way in (-9.0, 9.0)] + [at])
    return torch.cat([near, -near, 2 * near, 3 * near, torch.zeros(1, dtype=dtype)])[None].contiguous()


def _found(function: Function1, x: torch.Tensor, folder: Path) -> torch.Tensor:
    return Built(export(Function(function), x), make("cpu", "pointwise"), folder)({"x0": x})[0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
@pytest.mark.parametrize("name", [*ROUNDED, *KEPT])
def test_a_number_beside_a_half_type_decides_as_in_pytorch(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    function = {**ROUNDED, **KEPT}[name]
    # One module for all numbers: compiling takes longer than anything else.
    x = torch.cat([_around(number, dtype) for number in NUMBERS], 1)
    model = Function(lambda x: tuple(function(x, number) for number in NUMBERS))
    built = Built(export(model, x), make("cpu", "pointwise"), tmp_path)
    for number, got, want in zip(NUMBERS, built({"x0": x}), model(x), strict=True):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, rtol=8e-3, atol=0, msg=f"{number}: {x} {got} {want}")


@pytest.mark.parametrize("name", LOGITS)
def test_logit_is_cut_off_where_it_is_told_to(name: str, tmp_path: Path) -> None:
    x = torch.tensor([[0.0, 1.0, -0.5, 1.5, 0.3, 0.05, 0.95, 0.5, 1e-4, 0.9999, float("nan")]])
    got, want = _found(LOGITS[name], x, tmp_path), LOGITS[name](x)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_what_is_a_number_of_every_type_is_written_as_it_is() -> None:
    graph = export(Function(lambda x: ((x > 0.5), (x <= 2))), torch.ones(3, 4, dtype=torch.bfloat16))
    assert "ka_round" not in emit(graph, make("cpu", "pointwise")).sources["kernel.cpp"]
