"""Rows on CUDA: teams of blocks, staged copies, and partial results that another launch combines; passes over 16-bit
elements: full batches of vectors, the rest, and which loads bypass the caches.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.schedule import read_schedule
from kernel_assistant.generator.search.search import initial, neighbours
from tests.generator.checks import check, check_compiles
from tests.generator.cuda_on_host import check_on_host
from tests.generator.harness import H200, Built, Function, bindings, export, graph_of, resized
from tests.generator.modules import Case, case

pytestmark = pytest.mark.builds

Row = tuple[nn.Module, torch.Tensor]


def _softmax(*shape: int) -> Row:
    return Function(lambda x: F.softmax(x, -1)), torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 3


def _weighted(model: nn.Module) -> nn.Module:
    """The norm with weights that differ."""
    with torch.no_grad():
        for number, weight in enumerate(model.parameters()):
            weight += torch.linspace(0, number + 1, weight.numel()).view_as(weight)
    return model


def _layer_norm(*shape: int) -> Row:
    return _weighted(nn.LayerNorm(shape[1:])), _softmax(*shape)[1] + 7


def _group_norm(*shape: int) -> Row:
    """Its weights are constant along pieces of the row."""
    return _weighted(nn.GroupNorm(2, shape[1])), _softmax(*shape)[1] - 3


def _norm_of_all(*shape: int) -> Row:
    return Function(lambda x: x / torch.norm(x)), _softmax(*shape)[1]


def _twice(*shape: int) -> Row:
    """Two successive partial reductions, and an output that does not vary along the row."""
    return Function(lambda x: ((y := F.softmax(x, -1)) / y.norm(dim=-1, keepdim=True), x.sum(-1))), _softmax(*shape)[1]


def _half(*shape: int) -> Row:
    return Function(lambda x: F.log_softmax(x, -1)), _softmax(*shape)[1].bfloat16()


EVEN, ODD = 1 << 16, (1 << 16) - 1
FORMS = [
    (_softmax(3, EVEN), "rows/team parts=4 block=512"),
    (_softmax(3, ODD), "rows/team parts=3 block=256"),
    (_softmax(3, ODD), "rows/team parts=5 block=128 stage=0 unroll=2 hint=1"),
    (_layer_norm(3, 40, 1001), "rows/team parts=3 block=512"),
    (_layer_norm(3, 40, 1000), "rows/team parts=16 block=64 stage=0"),
    (_twice(3, ODD), "rows/team parts=7 block=256"),
    (_group_norm(3, 8, 64, 32), "rows/team parts=3 block=128"),
    (_group_norm(3, 8, 64, 32), "rows/reg block=512 items=4"),
    (_group_norm(3, 8, 33, 31), "rows/split parts=3 block=64 join=1"),
    (_half(3, EVEN), "rows/team parts=2 block=256 vec=8"),
    (_softmax(3, EVEN), "rows/team parts=2 block=512 held=4"),
    (_softmax(3, ODD), "rows/team parts=3 block=256 held=8 stage=0"),
    (_group_norm(3, 8, 64, 32), "rows/team parts=4 block=128 held=2"),
    (_twice(3, ODD), "rows/team parts=7 block=256 held=2"),
    (_softmax(3, ODD), "rows/shared cluster=4 stage=1"),
    (_softmax(3, EVEN), "rows/shared cluster=8 stage=1 joint=1"),
    (_layer_norm(3, 40, 1001), "rows/shared cluster=2 joint=1"),
    (_norm_of_all(3, 501, 101), "rows/split parts=37 join=1"),
    (_twice(3, ODD), "rows/split parts=5 block=64 join=1"),
    (_layer_norm(3, 40, 1001), "rows/split parts=9 block=128 join=1"),
]
IDS = [f"{number} {line}" for number, (_, line) in enumerate(FORMS)]


@pytest.mark.slow
@pytest.mark.parametrize(("case", "line"), FORMS, ids=IDS)
def test_every_form_compiles(case: Row, line: str, tmp_path: Path) -> None:
    check_compiles(export(*case), read_schedule("cuda", line), tmp_path)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: F.softmax(x, -1), (2, 1 << 18)),
        (torch.exp, (3, 5000)),
        (lambda x: x.sum(-1), (3, 5000)),
        (lambda x: F.softmax(x, 0), (3, 5000)),
    ],
)
def test_rows_that_no_team_can_hold_are_refused(function: object, shape: tuple[int, ...]) -> None:
    with pytest.raises(Unsupported):
        emit(export(Function(function), torch.rand(shape)), read_schedule("cuda", "rows/team parts=4"))


def test_teams_come_first_where_rows_are_large() -> None:
    """The first schedule is a safe one; then come teams that fill at least half of the device and fit into it."""
    graph = export(nn.GroupNorm(2, 4), torch.rand(2, 4, 1024, 1024))
    schedules = initial(graph, "cuda", H200)
    assert schedules[1].form == "rows/team"
    teams = [schedule for schedule in schedules if schedule.form == "rows/team"]
    assert all(32 <= schedule["parts"] <= 4 * 132 for schedule in teams)
    assert teams[0].having(stage=0) in neighbours(graph, teams[0], H200)


def test_a_row_of_a_million_is_shared_by_blocks_and_an_empty_batch_by_none() -> None:
    graph = export(Function(lambda x: x.sum(-1)), torch.rand(2, 1 << 20))
    alone, empty = (msgspec.structs.replace(graph, dims=dict.fromkeys(graph.dims, rows)) for rows in (1, 0))
    one = initial(alone, "cuda", H200)
    assert one[0].form == "rows/split"
    assert one[0]["parts"] * 512 * one[0]["vec"] <= 1 << 20
    assert {schedule.form for schedule in one} > {"rows/split"}
    assert initial(empty, "cuda", H200)


def test_a_team_counts_from_zero() -> None:
    """Scratch memory is not initialised: the counters are set to zero before the blocks that wait for them."""
    candidate = emit(export(*_twice(3, ODD)), read_schedule("cuda", "rows/team parts=7"))
    zero, team = candidate.plan.launches
    counters = {spec.name for spec in candidate.plan.scratch if spec.dtype == "i32"}
    assert counters == {"arrived0", "arrived1"}
    assert {name for name, _ in zero.args if name.startswith("arrived")} == counters
    assert team.grid[0] == "B * 7"


@pytest.mark.gpu
@pytest.mark.parametrize(("case", "line"), FORMS, ids=IDS)
def test_one_row_and_many(case: Row, line: str, tmp_path: Path) -> None:
    """With fewer blocks than the device has room for, and with many more."""
    model, x = case
    built = Built(export(*case), read_schedule("cuda", line), tmp_path)
    check(model, (x,), built)
    check(model, resized((x,), 1), built)
    check(model, resized((x,), 300), built)


@pytest.mark.gpu
def test_a_row_that_does_not_fit_the_device_still_ends(tmp_path: Path) -> None:
    """8192 blocks of 64 threads wait for each other, more than any device can hold at once. The result is the same
    every time.
    """
    case = _layer_norm(2, (1 << 19) - 3)
    model, x = case
    graph = export(*case)
    built = Built(graph, read_schedule("cuda", "rows/team parts=8192 block=64 vec=1 unroll=1"), tmp_path)
    check(model, (x,), built)
    first, second = (built(bindings(graph, model, (x,)))[0] for _ in range(2))
    assert torch.equal(first, second)


def _bfloat(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape))).bfloat16()


# Results in float, so that sums are compared to more than three digits.
CASES: dict[str, Case] = {
    "squares": case(lambda a, b: ((a.float() - b.float()) ** 2).mean(), _bfloat(5, 1000), _bfloat(5, 1000) + 1),
    "hinge": case(lambda p, t: (1 - p.float() * t.float()).clamp(min=0).mean(), _bfloat(6, 1024), _bfloat(1024)),
    "odd": case(lambda x: (x.float() ** 2).sum(), _bfloat(7, 333)),
    "norm": case(lambda x: x / torch.norm(x, p="fro"), _bfloat(5, 8, 120)),
    "rows": case(lambda x: F.softmax(x.float(), -1), _bfloat(3, 1512)),
    "odd rows": case(lambda x: F.softmax(x.float(), -1), _bfloat(3, 1501)),
    "pointwise": case(torch.sigmoid, _bfloat(5, 24)),
    "odd pointwise": case(torch.sigmoid, _bfloat(5, 27)),
}
LINES = [
    ("squares", "rows/split block=64 parts=2 unroll=4 vec=8 join=1"),
    ("squares", "rows/split block=32 parts=7 unroll=2 vec=8"),
    ("squares", "rows/stream block=32 unroll=8 vec=8"),
    ("hinge", "rows/split block=64 parts=2 unroll=4 vec=8 join=1 hint=1"),
    ("hinge", "rows/split block=32 parts=5 unroll=2 vec=4"),
    ("odd", "rows/split block=32 parts=3 unroll=2 vec=8"),
    ("norm", "rows/split block=32 parts=3 unroll=4 vec=8 join=1 hint=1"),
    ("rows", "rows/stream block=32 unroll=4 vec=8"),
    ("odd rows", "rows/stream block=32 unroll=2 vec=8"),
    ("odd rows", "rows/split block=32 parts=3 unroll=2 vec=8"),
    ("pointwise", "pointwise block=32 unroll=2 vec=8"),
    ("odd pointwise", "pointwise block=32 vec=8"),
]


@pytest.mark.parametrize(("name", "line"), LINES, ids=[f"{name} {line}" for name, line in LINES])
def test_values(name: str, line: str, tmp_path: Path) -> None:
    check_on_host(*CASES[name], line, tmp_path, rows=2)


def _source(name: str, line: str) -> str:
    return emit(graph_of(CASES[name]), read_schedule("cuda", line)).sources["kernel.cu"]


@pytest.mark.parametrize("name", ["squares", "pointwise"])
def test_no_element_is_asked_for_where_vectors_end_with_the_row(name: str) -> None:
    """Every value of the free sizes is a multiple of the vector."""
    source = _source(name, "rows/split vec=8" if name == "squares" else "pointwise vec=8")
    assert "e + k <" not in source
    assert "false>" not in source


def test_what_rows_share_stays_in_the_caches() -> None:
    source = _source("hinge", "rows/split vec=8 hint=1")
    assert "ka_row_load<8, 1, true>(l_x0" in source
    assert "ka_row_load<8, 0, true>(l_x1" in source


def test_first_schedules_of_a_long_reduction_differ_in_what_is_in_flight() -> None:
    size = torch.empty(32768, 32768, dtype=torch.bfloat16)
    first = initial(export(Function(lambda a, b: torch.mean((a - b) ** 2)), size, size), "cuda", H200)[:8]
    assert {schedule["unroll"] for schedule in first} == {2, 4, 8}
    assert {schedule["block"] for schedule in first} == {256, 512}
    assert {schedule["hint"] for schedule in first} == {0, 1}
    assert any(schedule["parts"] % H200.cores == 0 for schedule in first)
