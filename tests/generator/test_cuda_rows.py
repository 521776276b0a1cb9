"""Long rows on CUDA: teams of blocks, staged copies, and partial results that another launch combines."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.schedule import read_schedule
from kernel_assistant.generator.search.search import initial, neighbours
from kernel_assistant.records import OpGraph
from tests.generator.harness import Built, Function, bindings, check, compile_candidate, export, resized
from tests.generator.test_cuda import H200

pytestmark = pytest.mark.builds

Case = tuple[nn.Module, torch.Tensor]


def _softmax(*shape: int) -> Case:
    return Function(lambda x: F.softmax(x, -1)), torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 3


def _layer_norm(*shape: int) -> Case:
    model, (_, x) = nn.LayerNorm(shape[1:]), _softmax(*shape)
    with torch.no_grad():
        for number, weight in enumerate(model.parameters()):
            weight += torch.linspace(0, number + 1, weight.numel()).view_as(weight)
    return model, x + 7


def _group_norm(*shape: int) -> Case:
    """Its weights are constant along pieces of the row."""
    model, (_, x) = nn.GroupNorm(2, shape[1]), _softmax(*shape)
    with torch.no_grad():
        for number, weight in enumerate(model.parameters()):
            weight += torch.linspace(0, number + 1, weight.numel())
    return model, x - 3


def _norm_of_all(*shape: int) -> Case:
    return Function(lambda x: x / torch.norm(x)), _softmax(*shape)[1]


def _twice(*shape: int) -> Case:
    """Two successive partial reductions, and an output that does not vary along the row."""
    return Function(lambda x: ((y := F.softmax(x, -1)) / y.norm(dim=-1, keepdim=True), x.sum(-1))), _softmax(*shape)[1]


def _half(*shape: int) -> Case:
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


def _graph(case: Case) -> OpGraph:
    return export(*case)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize(("case", "line"), FORMS, ids=IDS)
def test_every_form_compiles(case: Case, line: str, tmp_path: Path) -> None:
    compile_candidate(emit(_graph(case), read_schedule("cuda", line)), tmp_path)


@pytest.mark.parametrize(
    ("case", "line"),
    [
        (_softmax(2, 1 << 18), "rows/team parts=4"),
        (Function(torch.exp), "rows/team parts=4"),
        (Function(lambda x: x.sum(-1)), "rows/team parts=4"),
        (Function(lambda x: F.softmax(x, 0)), "rows/team parts=4"),
    ],
)
def test_rows_that_no_team_can_hold_are_refused(case: Case | nn.Module, line: str) -> None:
    graph = _graph(case if isinstance(case, tuple) else (case, torch.rand(3, 5000)))
    with pytest.raises(Unsupported):
        emit(graph, read_schedule("cuda", line))


def test_teams_come_first_where_rows_are_large() -> None:
    """The first schedule is a safe one; then come teams that fill at least half of the device and fit into it."""
    graph = export(nn.GroupNorm(2, 4), torch.rand(2, 4, 1024, 1024))
    forms = [schedule.form for schedule in initial(graph, "cuda", H200)]
    assert forms[1] == "rows/team"
    teams = [schedule for schedule in initial(graph, "cuda", H200) if schedule.form == "rows/team"]
    assert all(32 <= schedule["parts"] <= 4 * 132 for schedule in teams)
    assert all(schedule in neighbours(graph, teams[0], H200) for schedule in [teams[0].having(stage=0)])


def test_a_team_counts_from_zero() -> None:
    """Scratch memory is not initialised: the counters are set to zero before the blocks that wait for them."""
    candidate = emit(_graph(_twice(3, ODD)), read_schedule("cuda", "rows/team parts=7"))
    zero, team = candidate.plan.launches
    counters = {spec.name for spec in candidate.plan.scratch if spec.dtype == "i32"}
    assert counters == {"arrived0", "arrived1"}
    assert {name for name, _ in zero.args if name.startswith("arrived")} == counters
    assert team.grid[0] == "B * 7"


@pytest.mark.gpu
@pytest.mark.parametrize(("case", "line"), FORMS, ids=IDS)
def test_one_row_and_many(case: Case, line: str, tmp_path: Path) -> None:
    """With fewer blocks than the device has room for, and with many more."""
    model, x = case
    built = Built(_graph(case), read_schedule("cuda", line), tmp_path)
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
    graph = _graph(case)
    built = Built(graph, read_schedule("cuda", "rows/team parts=8192 block=64 vec=1 unroll=1"), tmp_path)
    check(model, (x,), built)
    first, second = (built(bindings(graph, model, (x,)))[0] for _ in range(2))
    assert torch.equal(first, second)
