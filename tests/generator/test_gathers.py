"""Reads at data-dependent positions: the CPU compared with PyTorch, and the emitted text for both targets."""

from __future__ import annotations

import shutil
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.schedule import make
from kernel_assistant.generator.parse import parse
from kernel_assistant.generator.search.search import initial
from kernel_assistant.generator.support import classify
from kernel_assistant.targets import cpu
from kernel_assistant.targets.base import DeviceFacts
from tests.generator.cuda_on_host import OnHost
from tests.generator.harness import Built, Function, check, compile_candidate, export, resized
from tests.generator.window_modules import GATHERS, spread

pytestmark = pytest.mark.sampled(3)

H200 = DeviceFacts(target="cuda", name="g", arch="sm_90", cores=132, cache_bytes=50 << 20)


@pytest.mark.parametrize("name", GATHERS)
def test_first_schedule(name: str, tmp_path: Path) -> None:
    model, args = GATHERS[name]
    graph = export(model, *args)
    built = Built(graph, initial(graph, "cpu", cpu.facts())[0], tmp_path)
    check(model, args, built)
    if list(graph.dims) == ["B"]:
        check(model, resized(args, 1), built)
        check(model, resized(args, args[0].shape[0] * 2 + 1), built)


@pytest.mark.parametrize("name", GATHERS)
def test_schedules_come_back(name: str) -> None:
    model, args = GATHERS[name]
    graph = export(model, *args)
    for target, device in (("cpu", cpu.facts()), ("cuda", H200)):
        for schedule in initial(graph, target, device):
            assert parse(emit(graph, schedule)) == (graph, schedule)


def test_nothing_outside_is_read(tmp_path: Path) -> None:
    """PyTorch refuses indices outside; a candidate reads the nearest element instead, and `one_hot` gives a row of
    zeros.
    """
    model = Function(lambda x, i: x[i])
    x, good = spread(9, 4), torch.tensor([0, 8, -9, 3])
    graph = export(model, x, good)
    built = Built(graph, initial(graph, "cpu", cpu.facts())[0], tmp_path)
    got = built({"x0": x, "x1": torch.tensor([1 << 40, -(1 << 40), -10, 9])})[0]
    assert torch.equal(got, x[torch.tensor([8, 0, 0, 8])])
    hot = Function(lambda i: F.one_hot(i, 4))
    got = Built(export(hot, good % 4), make("cpu", "pointwise"), tmp_path)({"x0": torch.tensor([4, -1, 1])})[0]
    assert got.tolist() == [[0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]]


@lru_cache
def _on_host(wide: bool) -> OnHost:
    """Every way to read by one index, as CUDA on the host, where the sanitizers end a program that reads outside."""
    kind = torch.int64 if wide else torch.int32
    model = Function(
        lambda x, i: (
            x[i] + 1,
            x.index_select(0, i) * 2,
            F.embedding(i, x) - 1,
            x.gather(0, i[:, None].expand(11, 4).long()) * 3,
            torch.take_along_dim(x, i[:, None].expand(11, 4).long(), 0) * 4,
        )
    )
    graph = export(model, spread(9, 4), torch.zeros(11, dtype=kind))
    schedule = initial(graph, "cuda", H200)[0]
    return OnHost(graph, schedule, Path(mkdtemp(prefix="ka-gathers-")))


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@settings(max_examples=10, deadline=None)
@given(data=st.data(), wide=st.booleans())
def test_nothing_outside_is_read_on_cuda(data: st.DataObject, wide: bool) -> None:
    """Whatever the index says, up to the ends of its type."""
    bits = 63 if wide else 31
    number = st.one_of(st.integers(-12, 12), st.integers(-(1 << bits), (1 << bits) - 1))
    given_ = data.draw(st.lists(number, min_size=11, max_size=11))
    x, index = spread(9, 4), torch.tensor(given_, dtype=torch.int64 if wide else torch.int32)
    rows = torch.tensor([min(max(one + 9 if one < 0 else one, 0), 8) for one in given_])
    found = _on_host(wide)({"x0": x, "x1": index})
    for output, want in zip(found, (x + 1, x * 2, x - 1, x * 3, x * 4), strict=True):
        assert torch.equal(output, want[rows])


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x, i: x[i, :, i], "not neighbours"),
        (torch.take_along_dim, "without a dimension"),
    ],
)
def test_what_is_not_written_says_why(function: object, reason: str) -> None:
    args = spread(9, 7, 9), torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 8])
    assert reason in str(classify(export(Function(function), *args), "cpu"))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("name", ["embedding", "wide rows", "some columns", "pairs", "one_hot scaled"])
def test_cuda_compiles(name: str, tmp_path: Path) -> None:
    model, args = GATHERS[name]
    graph = export(model, *args)
    for schedule in initial(graph, "cuda", H200)[:2]:
        compile_candidate(emit(graph, schedule), tmp_path)
