"""Compares CPU candidates with float64, at the base size, with one row and with more rows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from kernel_assistant.generator.ir.schedule import Schedule, make
from kernel_assistant.generator.search.search import initial
from kernel_assistant.targets import cpu
from tests.generator.harness import Built, Function, bindings, check, export, resized
from tests.generator.modules import CASES

pytestmark = pytest.mark.sampled(3)

FEW_ROWS_SPLIT = make("cpu", "rows/split", chunk=100)


def _check_sizes(name: str, schedule: Schedule | None, folder: Path) -> None:
    model, args = CASES[name]
    graph = export(model, *args)
    built = Built(graph, schedule or initial(graph, "cpu", cpu.facts())[0], folder)
    check(model, args, built)
    if "B" in graph.dims and all(arg.is_contiguous() for arg in args):
        check(model, resized(args, 1), built)
        check(model, resized(args, args[0].shape[0] * 2 + 1), built)


@pytest.mark.parametrize("name", CASES)
def test_first_schedule(name: str, tmp_path: Path) -> None:
    _check_sizes(name, None, tmp_path)


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
    _check_sizes(name, schedule, tmp_path)


def test_gelu_does_not_cancel(tmp_path: Path) -> None:
    """For large negative values 1 + erf loses all digits; for positive values an error of two units in the last place
    is allowed.
    """
    x = torch.linspace(-9, 9, 200_001)[None].contiguous()
    model = Function(F.gelu)
    graph = export(model, x)
    got = Built(graph, initial(graph, "cpu", cpu.facts())[0], tmp_path)({"x0": x})[0].double()
    want = F.gelu(x.double())
    assert bool(((got - want).abs() <= torch.where(x > 0, 2**-22 * want, 5e-8)).all())


def test_exponential_below_all_numbers(tmp_path: Path) -> None:
    x = torch.cat([torch.linspace(-110, -80, 4001), torch.tensor([-1e30, -torch.inf, 88.7, 89.0, torch.nan])])[None]
    graph = export(Function(torch.exp), x.contiguous())
    got = Built(graph, initial(graph, "cpu", cpu.facts())[0], tmp_path)({"x0": x.contiguous()})[0]
    torch.testing.assert_close(got, torch.exp(x), rtol=3e-7, atol=1.5e-45, equal_nan=True)


def test_exponential_at_the_end_of_the_numbers(tmp_path: Path) -> None:
    """All numbers around that whose exponential is the first infinite one, which was no number, in either sign."""
    last = torch.tensor(88.7228394).view(torch.int32)
    near = (last + torch.arange(-512, 512, dtype=torch.int32)).view(torch.float32)
    x = torch.cat([near, -near]).view(8, 256)
    model = Function(lambda x: (torch.exp(x), torch.sigmoid(x), F.silu(x), F.softplus(x), torch.logaddexp(x, -x)))
    graph = export(model, x)
    got = Built(graph, initial(graph, "cpu", cpu.facts())[0], tmp_path)(bindings(graph, model, (x,)), dict(graph.dims))
    for mine, theirs in zip(got, model(x), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-30)


def test_sine_and_cosine_of_any_number(tmp_path: Path) -> None:
    x = torch.cat([torch.linspace(-300, 300, 6001), torch.tensor([1e5, -3e8, 1e20, 3e38, torch.inf, torch.nan])])[None]
    graph = export(Function(lambda x: (x.sin(), x.cos())), x.contiguous())
    found = Built(graph, initial(graph, "cpu", cpu.facts())[0], tmp_path)({"x0": x.contiguous()})
    for got, want in zip(found, (x.double().sin(), x.double().cos()), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=0, atol=2e-7, equal_nan=True)


def test_long_scan_keeps_accuracy(tmp_path: Path) -> None:
    """With 65,536 elements a running sum in float32 exceeds an error of 1e-4."""
    model, x = Function(lambda x: torch.cumsum(x, 1)), torch.rand(2, 65536)
    graph = export(model, x)
    got = Built(graph, initial(graph, "cpu", cpu.facts())[0], tmp_path)({"x0": x})[0]
    want = torch.cumsum(x.double(), 1)
    assert ((got.double() - want).abs() / want).max() < 2e-7


def test_special_values(tmp_path: Path) -> None:
    """NaN and infinities pass through as in PyTorch."""
    values = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e30, -1e30, 1e-40, 88.0, -104.0]
    x = torch.tensor(values * 4).reshape(2, 20)
    model = Function(
        lambda x: (x.relu(), x.exp(), x.tanh(), x.erf(), x.expm1(), x.clamp(-1, 1), x.abs().log1p(), x.log())
    )
    graph = export(model, x)
    got = Built(graph, make("cpu", "pointwise"), tmp_path)({"x0": x})
    for mine, theirs in zip(got, model(x), strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-6, atol=1e-37, equal_nan=True)
