"""Reads at data-dependent positions, joining, padding, rolling, repeating and resizing: the CPU compared with PyTorch,
and the emitted text for both targets.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_assistant.generator.ir.schedule import make
from kernel_assistant.generator.search.search import initial
from kernel_assistant.generator.support import classify
from kernel_assistant.targets import cpu
from tests.generator.checks import check, check_compiles, check_on_cpu, check_read_back
from tests.generator.cuda_on_host import OnHost
from tests.generator.harness import DEVICES, Built, Function, built_on_cpu, export, graph_of
from tests.generator.modules import spread
from tests.generator.window_modules import GATHERS, LAYOUT

pytestmark = pytest.mark.sampled(3)

CASES = GATHERS | LAYOUT


@pytest.mark.parametrize("name", CASES)
def test_first_schedule(name: str, tmp_path: Path) -> None:
    check_on_cpu(*CASES[name], tmp_path)


@pytest.mark.parametrize("name", CASES)
def test_schedules_come_back(name: str) -> None:
    graph = graph_of(CASES[name])
    for target, device in (("cpu", cpu.facts()), ("cuda", DEVICES["cuda"])):
        check_read_back(graph, initial(graph, target, device))


def test_nothing_outside_is_read(tmp_path: Path) -> None:
    """PyTorch refuses indices outside; a candidate reads the nearest element instead, and `one_hot` gives a row of
    zeros.
    """
    x, good = spread(9, 4), torch.tensor([0, 8, -9, 3])
    built = built_on_cpu(export(Function(lambda x, i: x[i]), x, good), tmp_path)
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
    schedule = initial(graph, "cuda", DEVICES["cuda"])[0]
    return OnHost(graph, schedule, Path(mkdtemp(prefix="ka-gathers-")))


@settings(max_examples=10, deadline=None)
@given(data=st.data(), wide=st.booleans())
def test_nothing_outside_is_read_on_cuda(data: st.DataObject, wide: bool) -> None:
    """Whatever the index says, up to the ends of its type."""
    bits = 63 if wide else 31
    number = st.one_of(st.integers(-12, 12), st.integers(-(1 << bits), (1 << bits) - 1))
    given_ = data.draw(st.lists(number, min_size=11, max_size=11))
    x, index = spread(9, 4), torch.tensor(given_, dtype=torch.int64 if wide else torch.int32)
    rows = torch.tensor([min(max(one + 9 if one < 0 else one, 0), 8) for one in given_])
    results = _on_host(wide)({"x0": x, "x1": index})
    for output, want in zip(results, (x + 1, x * 2, x - 1, x * 3, x * 4), strict=True):
        assert torch.equal(output, want[rows])


@pytest.mark.parametrize("name", ["stack of steps", "stack of steps behind", "cat of lookups"])
def test_a_stack_in_pieces_on_cuda(name: str, tmp_path: Path) -> None:
    """The sanitizers end a program that writes a piece outside its part of the result."""
    model, args = LAYOUT[name]
    graph = export(model, *args)
    check(model, args, OnHost(graph, initial(graph, "cuda", DEVICES["cuda"])[0], tmp_path))


@pytest.mark.parametrize(
    ("function", "reason"), [(lambda x, i: x[i, :, i], "not neighbours"), (torch.take_along_dim, "without a dimension")]
)
def test_what_is_not_written_says_why(function: object, reason: str) -> None:
    args = spread(9, 7, 9), torch.arange(9)
    assert reason in str(classify(export(Function(function), *args), "cpu"))


#: Every third one is in the gate.
COMPILED = (
    *("embedding", "wide rows", "some columns", "pairs", "one_hot scaled", "cat even"),
    *("cat", "stack last", "pad reflect", "stack of steps", "laplace", "transposed", "bilinear size"),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_cuda_compiles(name: str, tmp_path: Path) -> None:
    graph = graph_of(CASES[name])
    for schedule in initial(graph, "cuda", DEVICES["cuda"])[:2]:
        check_compiles(graph, schedule, tmp_path)
