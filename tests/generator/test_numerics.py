"""Compares CPU candidates with float64, at the base size, with one row and with more rows; activations in the headers,
for both targets, over a dense range of float32: errors in units in the last place.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from kernel_assistant.generator.ir.schedule import Schedule, make
from tests.generator.checks import check_on_cpu, check_sizes
from tests.generator.harness import Built, Function, built_on_cpu, export
from tests.generator.modules import CASES

pytestmark = pytest.mark.sampled(3)

FEW_ROWS_SPLIT = make("cpu", "rows/split", chunk=100)


@pytest.mark.parametrize("name", CASES)
def test_first_schedule(name: str, tmp_path: Path) -> None:
    check_on_cpu(*CASES[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "schedule"),
    [
        ("pointwise: batch norm", make("cpu", "pointwise", nt=1, tile=64)),
        ("pointwise: half", make("cpu", "pointwise", nt=1, tile=1024)),
        ("rows: softmax", make("cpu", "rows/again", nt=1)),
        ("rows: softmax wide", make("cpu", "rows/keep", nt=1, lanes=128)),
        ("rows: softmax wide", FEW_ROWS_SPLIT),
        ("rows: layer norm", FEW_ROWS_SPLIT),
        ("rows: statistics", FEW_ROWS_SPLIT),
        ("rows: apart long", make("cpu", "rows/again", nt=1)),
        ("rows: group norm long", make("cpu", "rows/again", nt=1)),
        ("rows: group norm long", FEW_ROWS_SPLIT),
        ("rows: apart", FEW_ROWS_SPLIT),
        ("rows: everything", FEW_ROWS_SPLIT),
        ("cols: softmax", make("cpu", "cols/tile", nt=1, tile=32)),
        ("scan: exclusive", make("cpu", "scan/rows", nt=1, tile=256)),
        ("scan: reverse odd", make("cpu", "scan/rows", nt=1)),
    ],
)
def test_other_schedules(name: str, schedule: Schedule, tmp_path: Path) -> None:
    model, args = CASES[name]
    check_sizes(model, args, Built(export(model, *args), schedule, tmp_path))


def test_gelu_does_not_cancel(tmp_path: Path) -> None:
    """For large negative values 1 + erf loses all digits; for positive values an error of two units in the last place
    is allowed.
    """
    x = torch.linspace(-9, 9, 200_001)[None].contiguous()
    model = Function(F.gelu)
    got = built_on_cpu(export(model, x), tmp_path)({"x0": x})[0].double()
    want = F.gelu(x.double())
    assert bool(((got - want).abs() <= torch.where(x > 0, 2**-22 * want, 5e-8)).all())


def test_exponential_below_all_numbers(tmp_path: Path) -> None:
    x = torch.cat([torch.linspace(-110, -80, 4001), torch.tensor([-1e30, -torch.inf, 88.7, 89.0, torch.nan])])[None]
    got = built_on_cpu(export(Function(torch.exp), x.contiguous()), tmp_path)({"x0": x.contiguous()})[0]
    torch.testing.assert_close(got, torch.exp(x), rtol=3e-7, atol=1.5e-45, equal_nan=True)


def test_exponential_at_the_end_of_the_numbers(tmp_path: Path) -> None:
    """All numbers around that whose exponential is the first infinite one, which was no number, in either sign."""
    last = torch.tensor(88.7228394).view(torch.int32)
    near = (last + torch.arange(-512, 512, dtype=torch.int32)).view(torch.float32)
    x = torch.cat([near, -near]).view(8, 256)
    model = Function(lambda x: (torch.exp(x), torch.sigmoid(x), F.silu(x), F.softplus(x), torch.logaddexp(x, -x)))
    graph = export(model, x)
    got = built_on_cpu(graph, tmp_path)({"x0": x}, dict(graph.dims))
    for mine, theirs in zip(got, model(x), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-30)


def test_sine_and_cosine_of_any_number(tmp_path: Path) -> None:
    x = torch.cat([torch.linspace(-300, 300, 6001), torch.tensor([1e5, -3e8, 1e20, 3e38, torch.inf, torch.nan])])[None]
    graph = export(Function(lambda x: (x.sin(), x.cos())), x.contiguous())
    results = built_on_cpu(graph, tmp_path)({"x0": x.contiguous()})
    for got, want in zip(results, (x.double().sin(), x.double().cos()), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=0, atol=2e-7, equal_nan=True)


def test_long_scan_keeps_accuracy(tmp_path: Path) -> None:
    """With 65,536 elements a running sum in float32 exceeds an error of 1e-4."""
    model, x = Function(lambda x: torch.cumsum(x, 1)), torch.rand(2, 65536)
    got = built_on_cpu(export(model, x), tmp_path)({"x0": x})[0]
    want = torch.cumsum(x.double(), 1)
    assert ((got.double() - want).abs() / want).max() < 2e-7


def test_special_values(tmp_path: Path) -> None:
    """NaN and infinities pass through as in PyTorch."""
    values = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e30, -1e30, 1e-40, 88.0, -104.0]
    x = torch.tensor(values * 4).reshape(2, 20)
    model = Function(
        lambda x: (x.relu(), x.exp(), x.tanh(), x.erf(), x.expm1(), x.clamp(-1, 1), x.abs().log1p(), x.log())
    )
    got = Built(export(model, x), make("cpu", "pointwise"), tmp_path)({"x0": x})
    for mine, theirs in zip(got, model(x), strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-6, atol=1e-37, equal_nan=True)


#: Function, and from where on its result is a normal number.
ACTIVATIONS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float]] = {
    "softplus": (F.softplus, -87.0),
    "softplus beta": (lambda x: F.softplus(x, beta=3.0, threshold=5.0), -29.0),
    "log_sigmoid": (F.logsigmoid, -1e4),
    "sigmoid": (torch.sigmoid, -87.0),
    "silu": (F.silu, -87.0),
    "mish": (F.mish, -87.0),
    "asinh": (torch.asinh, -1e38),
    "acosh": (torch.acosh, -1e38),
    "atanh": (torch.atanh, -1.5),
}
#: Of two operands, checked at all pairs of numbers that mean something to them.
OF_TWO: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "copysign": torch.copysign,
    "copysign of a number": lambda x, y: torch.copysign(x + y, -0.0),
    "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2,
    "heaviside": torch.heaviside,
    "ldexp": lambda x, y: torch.ldexp(x, y.clamp(-20, 20).trunc()),
    "sinc": lambda x, y: torch.sinc(x.clamp(-9, 9)) + 0 * y.clamp(0, 1),
    "angle": lambda x, y: torch.angle(x) + torch.signbit(y),
    "sign": lambda x, y: torch.sign(x) - 3 * torch.sgn(y),
    "finite": lambda x, y: torch.where(torch.isfinite(x), y, 1.5),
}
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.3, -0.3, 2.5, -7.0, 88.0, -88.0, 1e30, -1e30]
SPECIAL += [float("inf"), -float("inf"), float("nan")]
#: How far ours may be off, in units in the last place beyond what PyTorch's own result is off at the same value; the
#: exponential alone may be two.
ALLOWED = 4.0


def _sweep(lowest: float) -> torch.Tensor:
    """Every 1499th float32 from `lowest` to its negative, and the special values."""
    bits = torch.arange(0, torch.tensor(-lowest).view(torch.int32).item(), 1499, dtype=torch.int32)
    positive = bits.view(torch.float32)
    special = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e30, -1e30])
    return torch.cat([positive, -positive, special])


def _units(got: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """The distance in float32 units in the last place; 0 if the exact result is no normal number."""
    unit = torch.ldexp(torch.ones_like(exact), torch.frexp(exact).exponent - 24)
    normal = torch.isfinite(exact) & (exact.abs() >= 2.0**-126) & (exact.abs() < 2.0**128)
    return torch.where(normal, (got.double() - exact).abs() / unit, 0.0)


TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str, target: str, tmp_path: Path) -> None:
    function, lowest = ACTIVATIONS[name]
    x = _sweep(lowest)
    got = Built(export(Function(function), x), make(target, "pointwise"), tmp_path)({"x0": x})[0]
    exact, theirs = function(x.double()), function(x)
    assert torch.equal(torch.isnan(got), torch.isnan(theirs))
    assert torch.equal(torch.isinf(got), torch.isinf(theirs))
    units = _units(got, exact) - _units(theirs, exact)
    assert units.max() <= ALLOWED, f"{units.max():.2f} units worse at {x[units.argmax()]}"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", OF_TWO)
def test_functions_of_two(name: str, target: str, tmp_path: Path) -> None:
    values = torch.tensor(SPECIAL)
    x, y = (one.flatten().contiguous() for one in torch.meshgrid(values, values, indexing="ij"))
    want = OF_TWO[name](x, y)
    got = Built(export(Function(OF_TWO[name]), x, y), make(target, "pointwise"), tmp_path)({"x0": x, "x1": y})[0]
    torch.testing.assert_close(got, want, rtol=2e-6, atol=1e-6, equal_nan=True)
    if name.startswith(("copysign", "f")):
        assert torch.equal(torch.signbit(got[~got.isnan()]), torch.signbit(want[~got.isnan()]))
