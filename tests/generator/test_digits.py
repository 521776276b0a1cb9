"""Sums, variances and norms keep their digits: the error against float64 is twice PyTorch's or a few roundings, for
drawn means up to 1e5, deviations and lengths.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from kernel_assistant.generator.ir.schedule import Schedule, read_schedule
from tests.generator.cuda_on_host import OnHost
from tests.generator.harness import Function, as_list, bindings, built_on_cpu, export

pytestmark = pytest.mark.sampled(3)
EPS = torch.finfo(torch.float32).eps
#: Errors in units of EPS times the largest value. CPU totals are double. Threads of a block join moments in float32,
#: and those of a thread are measured from its first value, three deviations from the mean.
ROUNDINGS = {"cpu": 4, "cuda": 32}
SETTINGS = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
DRAWN = {
    "mean": st.sampled_from([0.0, 1.0, -30.0, 1e3, -2e4, 1e5]),
    "scale": st.sampled_from([1e-2, 1.0, 20.0, 1e3]),
    "seed": st.integers(0, 1000),
}


def _moments(dim: int) -> Callable[[torch.Tensor], tuple[torch.Tensor, ...]]:
    """Moments along a dimension, and a norm written out."""

    def moments(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        spread, mean = torch.var_mean(x, dim=dim, correction=0, keepdim=True)
        return (x - mean) * torch.rsqrt(spread + 1e-5), mean, x.std(dim)

    return moments


def _sums(dim: int) -> Callable[[torch.Tensor], tuple[torch.Tensor, ...]]:
    """Plain sums along a dimension, and what people compute from them."""

    def sums(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        mean = x.mean(dim, keepdim=True)
        return x - mean, x * torch.rsqrt(x.square().mean(dim, keepdim=True) + 1e-6), mean, x.sum(dim), x.norm(dim=dim)

    return sums


def _norms(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return F.layer_norm(x, x.shape[-1:]), F.rms_norm(x, x.shape[-1:])


#: Of which the free dimension is the one that is reduced.
COLUMNS = (24,)
#: Module and the shape of its input behind the free first dimension.
MODULES: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "moments of 1024": (Function(_moments(-1)), (1024,)),
    "moments of 17": (Function(_moments(-1)), (17,)),
    "sums of 1024": (Function(_sums(-1)), (1024,)),
    "norms of 1024": (Function(_norms), (1024,)),
    "all of a tensor": (Function(lambda x: (x.var((1, 2)), x.std((1, 2)), x.sum((1, 2)))), (33, 65)),
    "behind a function": (Function(lambda x: F.layer_norm(F.softplus(x), x.shape[-1:])), (300,)),
    "group norm": (nn.GroupNorm(2, 8), (8, 16, 9)),
    "instance norm": (nn.InstanceNorm2d(6), (6, 7, 16)),
    "batch norm": (nn.BatchNorm2d(6, track_running_stats=False), (6, 8, 8)),
    "columns": (Function(_moments(0)), COLUMNS),
    "sums of columns": (Function(_sums(0)), COLUMNS),
}
#: The form of a schedule for CUDA, and the module it runs.
FORMS = {
    "rows/warp lanes=32 items=8": "moments of 1024",
    "rows/stream block=64": "moments of 1024",
    "cols/stream tx=16 ty=2 vec=1": "columns",
    "rows/reg block=128 items=2": "norms of 1024",
    "rows/split parts=3 block=64": "sums of 1024",
    "cols/split parts=3 tx=8 ty=4 vec=4": "sums of columns",
    "rows/shared block=64": "norms of 1024",
    "rows/team parts=2 block=64": "moments of 1024",
    "rows/stream block=32 vec=1": "group norm",
}


class Compared:
    """A compiled candidate that is compared with PyTorch on drawn values."""

    def __init__(self, name: str, schedule: Schedule | None, folder: Path) -> None:
        self.model, self.shape = MODULES[name]
        example = torch.rand(5, *self.shape)
        graph = export(self.model, example)
        self.built = OnHost(graph, schedule, folder) if schedule else built_on_cpu(graph, folder)
        self.roundings = ROUNDINGS["cuda" if schedule else "cpu"]

    @torch.no_grad()
    def check(self, x: torch.Tensor) -> None:
        got = self.built(bindings(self.built.graph, self.model, (x,)))
        wide = copy.deepcopy(self.model).double()
        # Of magnitudes nothing cancels: sums of them say how large a rounding is.
        eager, exact, sizes = (as_list(one) for one in (self.model(x), wide(x.double()), wide(x.double().abs())))
        for place, (mine, theirs, want, size) in enumerate(zip(got, eager, exact, sizes, strict=True)):
            error, own = (float((one.double() - want).abs().max()) for one in (mine, theirs))
            allowed = 2 * own + self.roundings * EPS * float(torch.maximum(want.abs(), size.abs()).max())
            assert error <= allowed, f"output {place}: error {error:.3g}, PyTorch's {own:.3g}"


def _values(shape: tuple[int, ...], mean: float, scale: float, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale + mean


@pytest.fixture(params=MODULES)
def on_cpu(request: pytest.FixtureRequest, tmp_path: Path) -> Compared:
    return Compared(request.param, None, tmp_path)


@SETTINGS
@given(size=st.integers(2, 700), **DRAWN)
def test_on_the_cpu(on_cpu: Compared, size: int, mean: float, scale: float, seed: int) -> None:
    on_cpu.check(_values((size if on_cpu.shape == COLUMNS else 1 + size % 7, *on_cpu.shape), mean, scale, seed))


@pytest.fixture(params=FORMS)
def on_cuda(request: pytest.FixtureRequest, tmp_path: Path) -> Compared:
    return Compared(FORMS[request.param], read_schedule("cuda", request.param), tmp_path)


@SETTINGS
@given(size=st.integers(2, 400), **DRAWN)
def test_text_for_cuda(on_cuda: Compared, size: int, mean: float, scale: float, seed: int) -> None:
    on_cuda.check(_values((size if on_cuda.shape == COLUMNS else 1 + size % 3, *on_cuda.shape), mean, scale, seed))


LONG = 1 << 18
_POSITIVE = {
    "drawn": lambda: torch.rand(LONG, 8, generator=torch.Generator().manual_seed(2)),
    "far from zero": lambda: torch.rand(LONG, 8, generator=torch.Generator().manual_seed(2)) + 1e5,
    "equal": lambda: torch.full((LONG, 8), 0.1),
}


@pytest.mark.parametrize(
    ("line", "dim"),
    [
        ("cols/stream tx=16 ty=2 vec=4", 0),
        ("rows/stream block=64", 1),
        ("cols/split tx=8 ty=4 parts=2", 0),
        ("rows/split parts=2 block=128", 1),
    ],
)
def test_long_sums_for_cuda(line: str, dim: int, tmp_path: Path) -> None:
    """A float32 total errs by 1e-3 of itself where a thread adds 2^17 equal numbers to it: each is rounded alike."""
    model = Function(lambda x: (x.sum(dim), x.var(dim)))
    graph = export(model, torch.rand(8, LONG) if dim else torch.rand(9, 8))
    built = OnHost(graph, read_schedule("cuda", line), tmp_path)
    for values in _POSITIVE.values():
        x = values()
        total, spread = built({"x0": x if dim == 0 else x.T.contiguous()})
        torch.testing.assert_close(total.double(), x.double().sum(0), rtol=4 * EPS, atol=0)
        torch.testing.assert_close(spread.double(), x.double().var(0), rtol=32 * EPS, atol=1e-12)
