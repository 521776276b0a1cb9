"""Integers of every width compute as in PyTorch, bit for bit: they wrap, and their divisions go every way. So do `//`,
`%` and fmod of real numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from kernel_assistant.generator.ir.schedule import make
from tests.generator.checks import check_compiles
from tests.generator.cuda_on_host import OnHost
from tests.generator.harness import TORCH, Built, Function, as_list, export
from tests.generator.integers import (
    BETWEEN,
    BINARY,
    CHOICES,
    DTYPES,
    MIXED,
    REDUCTIONS,
    SCANS,
    UNARY,
    Function1,
    Function2,
    pairs,
)

Functions = dict[str, Callable[..., torch.Tensor]]


def together(functions: Functions, *args: torch.Tensor) -> tuple[Function, list[str]]:
    """One module with the results of all functions that PyTorch has for these arguments, and their names."""
    names = [name for name in functions if _possible(functions[name], args)]
    return Function(lambda *given: tuple(functions[name](*given) for name in names)), names


def _possible(function: Callable[..., torch.Tensor], args: Sequence[torch.Tensor]) -> bool:
    try:
        function(*args)
    except RuntimeError:
        return False
    return True


def compare(built: Any, model: Function, names: list[str], *args: torch.Tensor) -> None:
    """Every result equals eager's in dtype and bits; all NaN are one."""
    got = built({f"x{place}": arg for place, arg in enumerate(args)})
    for name, mine, theirs in zip(names, got, as_list(model(*args)), strict=True):
        assert mine.dtype == theirs.dtype, name
        wrong = (mine != theirs) | (torch.signbit(mine) != torch.signbit(theirs))
        wrong &= ~((mine != mine) & (theirs != theirs))
        if wrong.any():
            at = int(wrong.flatten().nonzero()[0])
            given = [arg.flatten()[at].item() for arg in args if arg.shape == mine.shape]
            raise AssertionError(f"{name}{given}: {mine.flatten()[at]} for {theirs.flatten()[at]}")


#: The compiled text of a target: "host" runs CUDA text on the CPU, with sanitizers.
TARGETS = ["cpu", pytest.param("host", marks=pytest.mark.builds), pytest.param("cuda", marks=pytest.mark.gpu)]


def ready(target: str, form: str, model: Function, args: Sequence[torch.Tensor], folder: Path) -> Any:
    """The module as a kernel of this form, ready to be called."""
    graph = export(model, *args)
    if target == "host":
        return OnHost(graph, make("cuda", form, block=32), folder)
    return Built(graph, make(target, form), folder)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.sampled(4)
def test_two_tensors(target: str, dtype: str, tmp_path: Path) -> None:
    args = pairs(DTYPES[dtype])
    model, names = together(BINARY, *args)
    assert set(BINARY) == set(names)
    compare(ready(target, "pointwise", model, args, tmp_path), model, names, *args)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.sampled(3)
def test_a_tensor_and_numbers(target: str, dtype: str, tmp_path: Path) -> None:
    x = pairs(DTYPES[dtype])[0]
    model, names = together(UNARY, x)
    assert len(set(UNARY) - set(names)) <= 2, set(UNARY) - set(names)
    compare(ready(target, "pointwise", model, (x,), tmp_path), model, names, x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("functions", "cpu", "cuda"),
    [(REDUCTIONS, "rows/again", "rows/warp"), (CHOICES, "rows/keep", "rows/reg"), (SCANS, "scan/rows", "scan/rows")],
    ids=["totals", "choices", "scans"],
)
@pytest.mark.parametrize("target", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.sampled(7)
def test_rows(functions: Functions, cpu: str, cuda: str, target: str, dtype: str, tmp_path: Path) -> None:
    x = pairs(DTYPES[dtype])[0][:500].reshape(20, 25).contiguous()
    model, names = together(functions, x)
    assert names == list(functions)
    compare(ready(target, cpu if target == "cpu" else cuda, model, (x,), tmp_path), model, names, x)


@pytest.mark.parametrize("source", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.sampled(4)
def test_real_numbers_become_integers(target: str, source: str, tmp_path: Path) -> None:
    """Towards 0, then what is beyond the type wraps; what is beyond int32 is undefined in PyTorch too."""
    numbers = torch.tensor([0.0, -0.0, 0.9, -0.9, 1.5, -1.5, 254.7, 255.0, 256.0, 300.0, -200.7, 7e4, -1e6, 2e9, -2e9])
    x = torch.cat([numbers, torch.randn(49, generator=torch.Generator().manual_seed(0)) * 1000]).to(TORCH[source])
    functions: Functions = {name: lambda a, dtype=dtype: (a * 1).to(dtype) for name, dtype in DTYPES.items()}
    model, names = together(functions, x)
    compare(ready(target, "pointwise", model, (x,), tmp_path), model, names, x)


@pytest.mark.parametrize("functions", [BINARY, UNARY], ids=["two tensors", "numbers"])
@pytest.mark.builds
def test_nvcc_has_no_warning(functions: Functions, tmp_path: Path) -> None:
    """Of uint8, whose comparisons with 0 it warns of."""
    args = pairs(torch.uint8)[: 2 if functions is BINARY else 1]
    check_compiles(export(together(functions, *args)[0], *args), make("cuda", "pointwise"), tmp_path)


@pytest.mark.parametrize("dtype", ["i8", "i32", "u8"])
@pytest.mark.parametrize(
    ("functions", "cpu", "cuda"),
    [(REDUCTIONS, "cols/tile", "cols/stream"), (SCANS, "scan/cols", "scan/cols")],
    ids=["totals", "scans"],
)
@pytest.mark.parametrize("target", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.sampled(4)
def test_columns(functions: Functions, cpu: str, cuda: str, target: str, dtype: str, tmp_path: Path) -> None:
    """The same along the first dimension."""
    x = pairs(DTYPES[dtype])[0][:500].reshape(25, 20).contiguous()
    along = {name: _along_first(function) for name, function in functions.items()}
    model, names = together(along, x)
    compare(ready(target, cpu if target == "cpu" else cuda, model, (x,), tmp_path), model, names, x)


def _along_first(function: Function1) -> Function1:
    def called(a: torch.Tensor) -> torch.Tensor:
        found = function(a.transpose(0, 1))
        return found.transpose(0, 1) if found.dim() == 2 else found

    return called


@pytest.mark.parametrize(
    ("functions", "form", "shape"),
    [
        (BINARY, "pointwise", (500,)),
        (UNARY, "pointwise", (500,)),
        (REDUCTIONS | CHOICES, "rows/again", (20, 25)),
        (SCANS, "scan/rows", (20, 25)),
    ],
    ids=["two tensors", "numbers", "rows", "scans"],
)
@pytest.mark.sampled(2)
def test_truth_values(functions: Functions, form: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    """What PyTorch has for them; no export has their shifts."""
    x = (pairs(torch.int64)[0][:500] % 3 == 1).reshape(shape)
    args = (x, torch.ones_like(x)) if functions is BINARY else (x,)
    model, names = together({name: one for name, one in functions.items() if "shift" not in name}, *args)
    compare(ready("cpu", form, model, args, tmp_path), model, names, *args)


@pytest.mark.parametrize("first", range(0, len(MIXED), 5))
@pytest.mark.parametrize("target", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.sampled(3)
def test_two_dtypes(target: str, first: int, tmp_path: Path) -> None:
    """One kernel for five pairs of dtypes and every function; the values are odd, so that no divisor is 0."""
    a, b = (value | 1 for value in pairs(torch.int64, seed=1))
    functions: Functions = {
        f"{left} {name} {right}": _between(function, left, right, with_dims)
        for left, right, with_dims in MIXED[first : first + 5]
        for name, function in BETWEEN.items()
    }
    args = (a, b, b[17].clone())
    model, names = together(functions, *args)
    assert len(names) > len(functions) // 2
    compare(ready(target, "pointwise", model, args, tmp_path), model, names, *args)


def _between(function: Function2, left: str, right: str, with_dims: bool) -> Callable[..., torch.Tensor]:
    """`function` of the first argument and another one, both converted; numbers of half types stay small."""

    def called(a: torch.Tensor, b: torch.Tensor, single: torch.Tensor) -> torch.Tensor:
        return function(_as(a, left), _as(b if with_dims else single, right))

    return called


def _as(value: torch.Tensor, dtype: str) -> torch.Tensor:
    return value.to(TORCH[dtype]) if dtype in DTYPES else (value % 1000 + 1).to(TORCH[dtype])


BITS = {torch.float32: torch.int32, torch.float64: torch.int64}
NUMBERS = (0.1, -0.3, 3.0, 1e-3)


def _edges(dtype: torch.dtype) -> torch.Tensor:
    """Zeros, infinities, NaN, the ends of the range, powers of two where precision ends, and all their neighbours."""
    found = torch.finfo(dtype)
    special = [0.0, 1.0, 3.0, 7.0, 0.1, 1e30, float("inf"), float("nan"), found.max, found.tiny, found.tiny / 1024]
    at = torch.tensor([*special, *(2.0**power for power in (20, 23, 24, 25, 28, 49, 52, 53, 57))], dtype=dtype)
    near = [torch.nextafter(at, torch.full_like(at, way)) for way in (-9e9, 9e9)]
    return torch.cat([at, -at, *near])


def real_pairs(dtype: torch.dtype, drawn: int = 2048) -> tuple[torch.Tensor, torch.Tensor]:
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
        super().__init__(lambda a, b: [one(a, b) for one in QUOTIENTS.values()])

    def forward(self, *args: torch.Tensor) -> Any:
        found = super().forward(*args)
        if not torch.compiler.is_exporting():
            for result, function in zip(found, QUOTIENTS.values(), strict=True):
                for place in result.isnan().nonzero()[:, 0].tolist():
                    result[place] = function(*(arg[place : place + 1] for arg in args))[0]
        return found


TWO: dict[str, Function2] = {
    "floor_divide": torch.floor_divide,
    "div floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "div trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "fmod": torch.fmod,
    "remainder": torch.remainder,
}
QUOTIENTS: dict[str, Function2] = TWO | {
    f"{name} {number}": lambda a, b, function=function, number=number: function(a, number)
    for number in NUMBERS
    for name, function in TWO.items()
}


@pytest.mark.parametrize("dtype", BITS, ids=["f32", "f64"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.sampled(2)
def test_bits(target: str, dtype: torch.dtype, tmp_path: Path) -> None:
    args = real_pairs(dtype, 2048 if target == "cpu" else 512)
    model = Divisions()
    compare(ready(target, "pointwise", model, args, tmp_path), model, list(QUOTIENTS), *args)


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
