"""`//`, `%` and fmod of real numbers as PyTorch defines them, bit for bit, and integers divided by 0 and by -1."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.generator.harness import Function
from tests.generator.integers import DTYPES, pairs
from tests.generator.test_integers import TARGETS, compare, ready

BITS = {torch.float32: torch.int32, torch.float64: torch.int64}
NUMBERS = (0.1, -0.3, 3.0, 1e-3)


def _edges(dtype: torch.dtype) -> torch.Tensor:
    """Zeros, infinities, NaN, the ends of the range, powers of two where precision ends, and all their neighbours."""
    found = torch.finfo(dtype)
    special = [0.0, 1.0, 3.0, 7.0, 0.1, 1e30, float("inf"), float("nan"), found.max, found.tiny, found.tiny / 1024]
    at = torch.tensor([*special, *(2.0**power for power in (20, 23, 24, 25, 28, 49, 52, 53, 57))], dtype=dtype)
    near = [torch.nextafter(at, torch.full_like(at, way)) for way in (-9e9, 9e9)]
    return torch.cat([at, -at, *near])


def _pairs(dtype: torch.dtype, drawn: int = 2048) -> tuple[torch.Tensor, torch.Tensor]:
    """Pairs of edges, any bits, and multiples of a divisor with up to 2^60 of it, moved by up to two neighbours."""
    random = torch.Generator().manual_seed(3)
    a, b = (side.flatten() for side in torch.meshgrid(_edges(dtype), _edges(dtype), indexing="ij"))
    limits = torch.iinfo(BITS[dtype])
    whole = torch.randint(limits.min, limits.max, (2, drawn), generator=random).to(BITS[dtype]).view(dtype)
    divisor = torch.randn(drawn, generator=random, dtype=torch.float64).to(dtype)
    power = torch.randint(0, 61, (drawn,), generator=random)
    times = (torch.rand(drawn, generator=random, dtype=torch.float64) * 2.0**power).floor()
    multiple = (times * divisor.double()).to(dtype)
    moved = multiple.view(BITS[dtype]) + torch.randint(-2, 3, (drawn,), generator=random).to(BITS[dtype])
    multiple = torch.where(multiple == 0, multiple, moved.view(dtype))
    return torch.cat([a, whole[0], multiple]), torch.cat([b, whole[1], divisor])


class Divisions(Function):
    """All divisions of two tensors, and of the first by numbers. NaN is computed again singly: PyTorch's vectors give
    it for fmod where the quotient leaves the range, its single numbers do not.
    """

    def __init__(self) -> None:
        super().__init__(lambda a, b: [one(a, b) for one in FUNCTIONS.values()])

    def forward(self, *args: torch.Tensor) -> Any:
        found = super().forward(*args)
        if not torch.compiler.is_exporting():
            for result, function in zip(found, FUNCTIONS.values(), strict=True):
                for place in result.isnan().nonzero()[:, 0].tolist():
                    result[place] = function(*(arg[place : place + 1] for arg in args))[0]
        return found


Function2 = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
TWO: dict[str, Function2] = {
    "floor_divide": torch.floor_divide,
    "div floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "div trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "fmod": torch.fmod,
    "remainder": torch.remainder,
}
FUNCTIONS: dict[str, Function2] = TWO | {
    f"{name} {number}": lambda a, b, function=function, number=number: function(a, number)
    for number in NUMBERS
    for name, function in TWO.items()
}


@pytest.mark.parametrize("dtype", BITS, ids=["f32", "f64"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.sampled(2)
def test_bits(target: str, dtype: torch.dtype, tmp_path: Path) -> None:
    args = _pairs(dtype, 2048 if target == "cpu" else 512)
    model = Divisions()
    compare(ready(target, "pointwise", model, args, tmp_path), model, list(FUNCTIONS), *args)


def _whole(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return a // b, torch.div(a, b, rounding_mode="trunc"), a % b, torch.fmod(a, b)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.sampled(4)
def test_no_quotient_of_integers_ends_the_process(target: str, dtype: str, tmp_path: Path) -> None:
    """By 0, where PyTorch raises, everything is 0. The smallest number by -1 is itself, where eager's quotient towards
    zero ends the process.
    """
    a, b = pairs(DTYPES[dtype])
    model, single = Function(_whole), (b == -1) & (dtype != "u8")
    want = [
        torch.where(single, other, one)
        for one, other in zip(_whole(a, torch.where(single, 1, b)), (-a, -a, 0, 0), strict=True)
    ]
    divisor = torch.cat([b, torch.zeros_like(b)])
    got = ready(target, "pointwise", model, (a.repeat(2), divisor), tmp_path)({"x0": a.repeat(2), "x1": divisor})
    for mine, theirs in zip(got, want, strict=True):
        assert torch.equal(mine, torch.cat([theirs.to(a.dtype), torch.zeros_like(a)]))
