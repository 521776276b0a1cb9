"""Activations written in the headers, over a dense sweep of float32: errors in units in the last place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from kernel_assistant.generator.schedule import make
from tests.generator.harness import Built, Function, export

#: Function, and from where on its result is a normal number.
ACTIVATIONS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float]] = {
    "softplus": (F.softplus, -87.0),
    "softplus beta": (lambda x: F.softplus(x, beta=3.0, threshold=5.0), -29.0),
    "log_sigmoid": (F.logsigmoid, -1e4),
    "sigmoid": (torch.sigmoid, -87.0),
    "silu": (F.silu, -87.0),
    "mish": (F.mish, -87.0),
}
#: How far ours may be off, in units in the last place beyond what PyTorch's own result is off at the same value; the
#: exponential alone may be two.
ALLOWED = 4.0


def _sweep(lowest: float) -> torch.Tensor:
    """Every 1499th float32 from `lowest` to its negative, and the special ones."""
    bits = torch.arange(0, torch.tensor(-lowest).view(torch.int32).item(), 1499, dtype=torch.int32)
    positive = bits.view(torch.float32)
    special = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e30, -1e30])
    return torch.cat([positive, -positive, special])


def _units(got: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Distance in units in the last place of float32; 0 where the exact result is no normal number."""
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
