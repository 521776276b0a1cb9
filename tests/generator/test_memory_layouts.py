"""Operands in any layout, for every family of kernels, library products and calls that stay PyTorch's: the values, and
the strides that a caller sees, are PyTorch's.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st

from kernel_assistant.generator.search.search import initial
from kernel_assistant.records import OpGraph
from kernel_assistant.targets import cpu
from kernel_assistant.worker.symbols import InexpressibleError
from tests.generator.by_parts import ByParts
from tests.generator.cuda_on_host import OnHost
from tests.generator.harness import H200, Built, Function, bindings, export
from tests.generator.layouts import drawn

Results = tuple[torch.Tensor, ...]
SHAPES = [(2, 3, 4), (3, 4, 6), (4, 5, 8), (5, 2, 16)]


def _attention(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Attention as people write it, with two heads."""
    q, k, v = (one.unflatten(2, (2, -1)).transpose(1, 2) for one in (x, y, x))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)


def _by_products(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The same out of products, with `view` where the copy before it allows one."""
    q, k, v = (one.unflatten(2, (2, -1)).permute(0, 2, 1, 3) for one in (x, y, x))
    mixed = ((q @ k.mT) * 0.5).softmax(-1) @ v
    return mixed.permute(0, 2, 1, 3).contiguous().view(x.shape)


#: One graph for each: a single compilation covers all of its results.
FAMILIES: dict[str, Callable[[torch.Tensor, torch.Tensor], Results]] = {
    "pointwise and rows": lambda x, y: (
        torch.tanh(x * y + 1),
        x.softmax(-1) * y,
        F.layer_norm(x, x.shape[-1:]),
        (x + y).sum(-1, keepdim=True).expand(x.shape),
        torch.where(x > y, x, y).transpose(0, 2),
    ),
    "columns, scans and windows": lambda x, y: (
        (x + y).softmax(1),
        x.mean((0, 1)),
        x.argmax(1),
        x.cumsum(-1),
        (x * y).cumsum(1),
        F.max_pool1d(x, 3, 2),
        F.avg_pool1d(x * 2, 2),
    ),
    "copies and moves": lambda x, y: (
        torch.cat([x, y], 1),
        x.flip(2).transpose(1, 2).reshape(x.shape[0], -1),
        x.roll(1, 2) * 2,
        torch.diagonal(x, 0, 1, 2) + 1,
        x.permute(2, 0, 1).narrow(0, 1, 2) * y.permute(2, 0, 1).narrow(0, 0, 2),
        x.unfold(2, 3, 2).sum(-1),
        x.permute(1, 2, 0).unfold(1, 2, 2) * 2,
        F.pad(y, (1, 2)),
    ),
    "storage": lambda x, y: (
        torch.as_strided(x * 2, (x.shape[0], 3), (2, 1), 1) * 3,
        torch.as_strided((x + y).transpose(1, 2)[:, 1:], (2, 3), (4, 1)),
        torch.as_strided(x[:, 1:], (x.shape[0], 2), (x.stride(0), x.stride(2))) + 1,
        torch.as_strided(y, y.shape[1:], y.stride()[1:]).sin(),
        torch.as_strided(x.clone(), (2, 3), (3, 1)) + torch.as_strided(y.contiguous(), (2, 3), (4, 1), 2),
    ),
    "products and calls": lambda x, y: (
        torch.bmm(x, y.transpose(1, 2)).relu(),
        (x * 2).sort(-1).values,
        x.transpose(1, 2).matmul(y).cos(),
        F.fold(x.tanh(), (x.shape[2] + 1, 1), (2, 1)).neg() if x.shape[1] % 2 == 0 else x.relu(),
    ),
    "attention": lambda x, y: (_attention(x, y) * 2, _by_products(x * 2, y)),
}


def _check(got: list[torch.Tensor], want: Results) -> None:
    assert len(got) == len(want)
    for place, (mine, theirs) in enumerate(zip(got, want, strict=True)):
        torch.testing.assert_close(
            mine, theirs, atol=2e-5, rtol=2e-5, msg=lambda text, at=place: f"result {at}: {text}"
        )
        rows = zip(theirs.shape, mine.stride(), theirs.stride(), strict=True)
        assert all(size == 1 or one == other for size, one, other in rows), (place, mine.stride(), theirs.stride())


def _operands(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    chance, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    shape = chance.choice(SHAPES)
    return drawn(shape, chance).make(generator), drawn(shape, chance).make(generator)


def _graph(model: Function, x: torch.Tensor, y: torch.Tensor) -> OpGraph:
    """The graph of what can be traced: positions from the beginning of storage are refused for an input that may begin
    elsewhere.
    """
    try:
        return export(model, x, y)
    except InexpressibleError:
        reject()


def _wanted(model: Function, x: torch.Tensor, y: torch.Tensor) -> Results:
    """PyTorch's results, where they are right: its attention on the CPU returns what lies in memory for some operands
    whose rows overlap (torch 2.13).
    """
    with torch.no_grad():
        want, exact = model(x, y), model(x.double(), y.double())
    assume(all(torch.allclose(one.double(), other.double(), atol=1e-4) for one, other in zip(want, exact, strict=True)))
    return want


def _compare(family: str, seed: int, build: Callable[[OpGraph, Path], Callable[..., list[torch.Tensor]]]) -> None:
    """Compares a family on drawn operands with PyTorch, as `build` makes it ready in a folder."""
    x, y = _operands(seed)
    model = Function(FAMILIES[family]).eval()
    graph = _graph(model, x, y)
    want = _wanted(model, x, y)
    with tempfile.TemporaryDirectory() as folder:
        _check(build(graph, Path(folder))(bindings(graph, model, (x, y)), dict(graph.dims)), want)


UNCHECKED = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=3, suppress_health_check=UNCHECKED)
@given(seed=st.integers(0, 10**6), pick=st.integers(0, 9))
def test_values_and_strides_are_those_of_pytorch(family: str, seed: int, pick: int) -> None:
    def build(graph: OpGraph, folder: Path) -> Built:
        schedules = initial(graph, "cpu", cpu.facts())
        return Built(graph, schedules[pick % len(schedules)], folder)

    _compare(family, seed, build)


@pytest.mark.builds
@pytest.mark.parametrize("family", ["products and calls", "attention", "storage"])
@settings(max_examples=2, suppress_health_check=UNCHECKED)
@given(seed=st.integers(0, 10**6))
def test_parts_for_cuda_agree_about_layouts(family: str, seed: int) -> None:
    _compare(family, seed, ByParts)


@pytest.mark.builds
@pytest.mark.parametrize("family", ["storage"])
@settings(max_examples=1, suppress_health_check=UNCHECKED)
@given(seed=st.integers(0, 10**6), pick=st.integers(0, 9))
def test_kernels_for_cuda_read_any_layout(family: str, seed: int, pick: int) -> None:
    def build(graph: OpGraph, folder: Path) -> OnHost:
        schedules = initial(graph, "cuda", H200)
        return OnHost(graph, schedules[pick % len(schedules)], folder)

    _compare(family, seed, build)
