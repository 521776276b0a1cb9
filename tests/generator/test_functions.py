"""Activations in the headers, over a dense range of float32: errors in units in the last place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from kernel_assistant.generator.ir.schedule import make
from tests.generator.harness import Built, Function, export

pytestmark = pytest.mark.sampled(3)

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


def _check(name: str, target: str, folder: Path) -> None:
    function, lowest = ACTIVATIONS[name]
    x = _sweep(lowest)
    model = Function(function)
    got = Built(export(model, x), make(target, "pointwise"), folder)({"x0": x})[0]
    exact, theirs = function(x.double()), function(x)
    assert torch.equal(torch.isnan(got), torch.isnan(theirs))
    assert torch.equal(torch.isinf(got), torch.isinf(theirs))
    units = _units(got, exact) - _units(theirs, exact)
    assert units.max() <= ALLOWED, f"{units.max():.2f} units worse at {x[units.argmax()]}"


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_cpu(name: str, tmp_path: Path) -> None:
    _check(name, "cpu", tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_cuda(name: str, tmp_path: Path) -> None:
    _check(name, "cuda", tmp_path)


def _check_of_two(name: str, target: str, folder: Path) -> None:
    values = torch.tensor(SPECIAL)
    x, y = (one.flatten().contiguous() for one in torch.meshgrid(values, values, indexing="ij"))
    model = Function(OF_TWO[name])
    got = Built(export(model, x, y), make(target, "pointwise"), folder)({"x0": x, "x1": y})[0]
    torch.testing.assert_close(got, OF_TWO[name](x, y), rtol=2e-6, atol=1e-6, equal_nan=True)
    if name.startswith(("copysign", "f")):
        assert torch.equal(torch.signbit(got[~got.isnan()]), torch.signbit(OF_TWO[name](x, y)[~got.isnan()]))


@pytest.mark.parametrize("name", OF_TWO)
def test_of_two_on_the_cpu(name: str, tmp_path: Path) -> None:
    _check_of_two(name, "cpu", tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize("name", OF_TWO)
def test_of_two_on_cuda(name: str, tmp_path: Path) -> None:
    _check_of_two(name, "cuda", tmp_path)
