"""Scans and reductions of tensors with one tiny and one huge dimension: values at drawn sizes, and how many threads
each schedule that a search would try gives work to.
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.graph_text import read_graph
from kernel_assistant.generator.ir.schedule import read_schedule
from kernel_assistant.generator.parse import parse
from kernel_assistant.generator.search.search import initial, neighbours
from kernel_assistant.records import OpGraph
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.worker.runner import plan as plans
from tests.generator.checks import check, check_compiles
from tests.generator.cuda_on_host import OnHost
from tests.generator.harness import H200, Built, Function, export

EPYC = DeviceFacts(target="cpu", name="EPYC", arch="x86-64-avx2", cores=16, threads=16, cache_bytes=32 << 20)

SCANS = Function(
    lambda x: (x.cumsum(0), (1 + x / 64).cumprod(0), *torch.cummax(x, 0), x.double().cumsum(0), x.long().cumsum(0))
)
EXPONENTIALS = Function(lambda x: ((x * 9).logcumsumexp(0), torch.where(x > 1, -torch.inf, x).double().logcumsumexp(0)))
EXPONENTIALS_OF_ROWS = Function(lambda x: (x.logcumsumexp(1), (x * 9).half().logcumsumexp(1)))
BACK = Function(lambda x: x.flip(0).cumsum(0).flip(0) * 2 + x)
ROWS = Function(lambda x: (x.cumsum(1), (1 + x / 64).cumprod(1), *torch.cummin(x, 1), (x * 9).bfloat16().cumsum(1)))
ROWS_BACK = Function(lambda x: x.flip(1).cumsum(1).flip(1) - x)
MIDDLE = Function(lambda x: (F.softmax(x, 1), x.sum(1), x.argmin(1), (x > 0).all(1), *torch.var_mean(x, 1)))
FIRST = Function(lambda x: (F.softmax(x, 0), x.sum(0), x.argmax(0), x.prod(0), *torch.var_mean(x, 0)))

#: Module, sizes behind the first dimension, and a schedule.
FORMS = [
    (SCANS, (3,), "cuda", "scan/cols block=32 chunk=4 join=32 unroll=2"),
    (SCANS, (5, 2), "cuda", "scan/cols block=64 unroll=4"),
    (EXPONENTIALS, (3,), "cuda", "scan/cols block=32 chunk=4 join=32 unroll=2"),
    (EXPONENTIALS_OF_ROWS, (531,), "cuda", "scan/split block=32 items=2 parts=3 vec=4"),
    (EXPONENTIALS_OF_ROWS, (5,), "cuda", "scan/thread block=32 vec=1"),
    (EXPONENTIALS, (3,), "cpu", "scan/cols chunk=16 tile=4"),
    (EXPONENTIALS_OF_ROWS, (70,), "cpu", "scan/rows lanes=64 tile=512"),
    (BACK, (2,), "cuda", "scan/cols block=32 chunk=16 join=32 unroll=4"),
    (ROWS, (531,), "cuda", "scan/split block=32 items=2 parts=3 vec=4"),
    (ROWS_BACK, (532,), "cuda", "scan/split block=64 items=1 parts=5 vec=4"),
    (ROWS, (5,), "cuda", "scan/thread block=32 vec=1"),
    (ROWS_BACK, (8,), "cuda", "scan/thread block=64 vec=4"),
    (FIRST, (4,), "cuda", "cols/split parts=5 tx=1 ty=32 vec=4 unroll=2"),
    (FIRST, (3,), "cuda", "cols/split parts=3 tx=4 ty=16 unroll=2"),
    (MIDDLE, (17, 3), "cuda", "cols/stream flat=1 tx=16 ty=4 unroll=2"),
    (MIDDLE, (17, 3), "cuda", "cols/reg flat=1 tx=32 ty=2 items=9"),
    (ROWS, (5,), "cpu", "scan/across tile=16"),
    (MIDDLE, (9,), "cpu", "rows/across tile=16"),
    (SCANS, (3,), "cpu", "scan/cols chunk=16 tile=4"),
    (BACK, (2,), "cpu", "scan/cols chunk=64 tile=16"),
    (FIRST, (3,), "cpu", "cols/split chunk=64 tile=2 nt=1"),
    (MIDDLE, (17, 3), "cpu", "cols/split chunk=8 tile=4"),
]
ON_CUDA = [number for number, form in enumerate(FORMS) if form[2] == "cuda"]
IDS = [f"{number} {target} {line}" for number, (_, _, target, line) in enumerate(FORMS)]


@lru_cache
def _built(number: int) -> OnHost | Built:
    model, sizes, target, line = FORMS[number]
    schedule, graph = read_schedule(target, line), export(model, torch.rand(7, *sizes))
    folder = Path(mkdtemp(prefix="ka-thin-"))
    return Built(graph, schedule, folder) if target == "cpu" else OnHost(graph, schedule, folder)


@pytest.mark.sampled(2)
@settings(max_examples=6, deadline=None)
@given(rows=st.one_of(st.sampled_from([1, 2, 15, 16, 17, 63, 65]), st.integers(1, 400)), seed=st.integers(0, 99))
@pytest.mark.parametrize("number", range(len(FORMS)), ids=IDS)
def test_values(number: int, rows: int, seed: int) -> None:
    """One binary for all sizes of the first dimension; CUDA runs on the host, with the sanitizers."""
    model, sizes, target, _ = FORMS[number]
    rows = rows if (len(sizes) == 1 and sizes[0] < 9) or target == "cpu" else 1 + rows % 9
    check(model, (torch.randn(rows, *sizes, generator=torch.Generator().manual_seed(seed)),), _built(number))


@pytest.mark.builds
@pytest.mark.slow
@pytest.mark.parametrize("number", ON_CUDA)
def test_every_form_compiles(number: int, tmp_path: Path) -> None:
    model, sizes, _, line = FORMS[number]
    check_compiles(export(model, torch.rand(7, *sizes)), read_schedule("cuda", line), tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize("number", ON_CUDA)
def test_values_on_a_gpu(number: int, tmp_path: Path) -> None:
    model, sizes, _, line = FORMS[number]
    built = Built(export(model, torch.rand(7, *sizes)), read_schedule("cuda", line), tmp_path)
    for rows in (1, 33, 4099):
        check(model, (torch.randn(rows, *sizes, generator=torch.Generator().manual_seed(rows)),), built)


OPERATORS = {
    "cumsum": ("f32", True),
    "cumprod": ("f32", True),
    "logcumsumexp": ("f32", True),
    "sum": ("f32", False),
    "argmax": ("i64", False),
    "softmax": ("f32", True),
    "amax": ("f32", False),
    "std.correction": ("f32", False),
}


@st.composite
def thin(draw: st.DrawFn) -> OpGraph:
    """One operator on a tensor of 2^22 elements or fewer, of which one dimension is tiny or huge."""
    operator = draw(st.sampled_from(sorted(OPERATORS)))
    small, large = 1 << draw(st.integers(2, 6)), 1 << draw(st.integers(14, 20))
    large = min(large, (1 << 22) // small)
    sizes = draw(st.sampled_from([(small, large), (large, small), (large // 16, 16, small), (large // 64, small, 64)]))
    dim = draw(st.integers(0, len(sizes) - 1))
    dtype, whole = OPERATORS[operator]
    text = ["B", *(str(size) for size in sizes[1:])]
    result = text if whole else [size for place, size in enumerate(text) if place != dim]
    where = f"[{dim}]" if operator in ("sum", "amax", "std.correction") else str(dim)
    lines = [
        f"dims B={sizes[0]}",
        f"input x0 f32[{','.join(text)}]",
        f"%n0 = {operator}(%x0, {where}) {dtype}[{','.join(result)}]",
        "return %n0",
    ]
    return read_graph(lines)


@settings(max_examples=40, deadline=None)
@given(graph=thin())
def test_no_schedule_leaves_the_device_without_work(graph: OpGraph) -> None:
    """Counted, not timed: enough threads for the bytes that move, and not many times more than there are elements."""
    count = math.prod(graph.dims.get(size) or int(size) for size in graph.inputs[0].spec.shape)
    first = initial(graph, "cuda", H200)
    for schedule in [*first, *neighbours(graph, first[0], H200)]:
        candidate = emit(graph, schedule)
        threads = [
            plans.evaluate(launch.grid[0], graph.dims) * plans.evaluate(launch.block[0], graph.dims)
            for launch in candidate.plan.launches
        ]
        assert max(threads) >= min(count / 512, 64 * H200.cores), schedule.text()
        assert max(threads) <= 64 * count, schedule.text()
        assert parse(candidate) == (graph, schedule)


@settings(max_examples=15, deadline=None)
@given(graph=thin())
def test_few_long_columns_are_divided_on_the_cpu(graph: OpGraph) -> None:
    """The first schedule has a task for each thread, where there are rows enough."""
    rows = graph.dims["B"]
    first = initial(graph, "cpu", EPYC)[0]
    if first.form in ("scan/cols", "cols/split", "cols/tile") and rows >= 1 << 17:
        assert 0 < dict(first.params)["chunk"] * EPYC.threads <= rows


@pytest.mark.parametrize("shape", [(4096, 8), (2, 1 << 17), (3, 40)])
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_scan_after_a_reduction_and_beside_a_constant_row_keeps_a_schedule(
    shape: tuple[int, int], target: str
) -> None:
    """The forms for thin shapes cannot write them; `scan/rows` can."""
    device = EPYC if target == "cpu" else H200
    for function in (lambda x: F.softmax(x, 1).cumsum(1), lambda x: (x.cumsum(1), x[:, 0] * 2)):
        graph = export(Function(function), torch.rand(shape))
        assert "scan/rows" in {form for schedule in initial(graph, target, device) for form in schedule.forms()}


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (lambda x: F.softmax(x, 1).cumsum(1), "scan/split parts=4"),
        (lambda x: F.softmax(x, 1).cumsum(1), "scan/thread"),
        (lambda x: x.flip(1).cumsum(1).flip(1), "scan/split parts=4 vec=4"),
        (lambda x: x.sum(1), "cols/stream flat=1 vec=4 tx=32"),
    ],
)
def test_what_a_form_cannot_do_is_refused(function: object, line: str) -> None:
    with pytest.raises(Unsupported):
        emit(export(Function(function), torch.rand(5, 33)), read_schedule("cuda", line))
