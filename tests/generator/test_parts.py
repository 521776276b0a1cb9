"""Tests where graphs are cut, which parts go to a library, that composite candidates compute right on the CPU and are
read back from their text, and how their schedules are searched.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from msgspec.structs import replace
from torch import nn

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.graph_text import read_graph, write_graph
from kernel_assistant.generator.ir.schedule import Schedule, in_parts, make, read_schedule
from kernel_assistant.generator.parse import parse
from kernel_assistant.generator.plan.partition import Partition, cut, partition
from kernel_assistant.generator.search.search import initial, neighbours
from kernel_assistant.generator.support import Family, classify
from kernel_assistant.policy.generator import MOST
from kernel_assistant.records import OpGraph
from kernel_assistant.targets import cpu
from tests.generator.checks import check, check_on_cpu, check_read_back
from tests.generator.composites import COMPOSITES, SINGLE
from tests.generator.harness import DEVICES, Built, Computed, Function, export, graph_of
from tests.generator.modules import CASES as ONE_NEST
from tests.generator.test_policy import play

pytestmark = pytest.mark.sampled(3)

CASES = {**SINGLE, **COMPOSITES}


def _attention(x: torch.Tensor, norm: nn.Module, heads: nn.Module, out: nn.Module) -> torch.Tensor:
    """Its heads are slices of one projection, so that a library cannot read them in place."""
    rows, steps, width = x.shape
    query, key, value = (part.view(rows, steps, 4, 16).transpose(1, 2) for part in heads(norm(x)).chunk(3, -1))
    shares = torch.softmax(query @ key.transpose(-1, -2) / 4, -1)
    return x + out((shares @ value).transpose(1, 2).reshape(rows, steps, width))


ATTENTION = Computed(_attention, nn.LayerNorm(64), nn.Linear(64, 192), nn.Linear(64, 64))


def _graph(function: Callable[..., Any], *args: torch.Tensor) -> OpGraph:
    return export(Function(function), *args)


def _cut(function: Callable[..., Any], *args: torch.Tensor) -> Partition:
    return partition(_graph(function, *args), "cuda")


def _operators(found: Partition) -> list[list[str]]:
    return [[node.op.partition(".")[0] for node in part.graph.nodes] for part in found.parts]


@pytest.mark.parametrize("name", ONE_NEST)
def test_one_nest_is_one_part(name: str) -> None:
    graph = graph_of(ONE_NEST[name])
    (part,) = partition(graph, "cuda").parts
    assert (part.graph, part.inputs, part.outputs) == (graph, tuple(v.name for v in graph.inputs), graph.outputs)


@pytest.mark.parametrize("name", COMPOSITES)
def test_every_value_is_there_before_it_is_read(name: str) -> None:
    graph = graph_of(COMPOSITES[name])
    found = partition(graph, "cuda")
    known = {value.name for value in graph.inputs}
    for part in found.parts:
        assert {found.same.get(value, value) for value in part.inputs} <= known
        assert not known & set(part.outputs)
        known |= set(part.outputs)
        inside = [value.name for value in part.graph.inputs]
        assert len(set(inside)) == len(inside) == len(part.inputs)
    assert {found.same.get(value, value) for value in found.outputs} <= known


def test_the_cut_is_where_little_crosses_it() -> None:
    """64 numbers pass from the row sums to the column sums, not 64 rows."""
    found = _cut(lambda x: (x * x.sum(1, keepdim=True)).sum(0), torch.rand(64, 96))
    assert _operators(found) == [["sum"], ["mul", "sum"]]
    assert found.parts[0].graph.spec(found.parts[0].outputs[0]).shape == ("B", "1")


def test_a_mean_over_everything_begins_in_the_rows() -> None:
    found = _cut(lambda x, y: F.kl_div(F.log_softmax(x, 1), y), torch.rand(64, 96), torch.rand(64, 96))
    assert _operators(found) == [["log_softmax", "kl_div", "sum"], ["sum", "div"]]
    found = _cut(lambda x: F.softmax(x, 1).max(), torch.rand(64, 96))
    assert _operators(found) == [["softmax", "amax"], ["max"]]


def test_a_reduction_is_not_repeated_in_a_loop_around_it() -> None:
    """The softmax of 512 scores is stored once and not computed again for each of 1024 columns."""
    found = _cut(
        lambda x, v: (F.softmax(x, 1).unsqueeze(-1) * v).sum(1).softmax(0),
        torch.rand(64, 512),
        torch.rand(64, 512, 1024),
    )
    assert _operators(found)[0] == ["softmax"]


def test_views_are_never_written() -> None:
    found = _cut(lambda x: F.softmax(x.sum(1).view(-1, 4).transpose(0, 1), 0).sum(), torch.rand(64, 96))
    assert not any(operators in (["view"], ["transpose"]) for operators in _operators(found))


def test_scratch_memory_is_used_again() -> None:
    """Of the three values between four parts, the first and the third share memory."""
    graph = _graph(lambda x: F.softmax(F.softmax(F.softmax(F.softmax(x, 0), 1), 0), 1), torch.rand(64, 96))
    candidate = emit(graph, initial(graph, "cpu", DEVICES["cpu"])[0])
    assert len(candidate.plan.launches) == 4
    assert [spec.name for spec in candidate.plan.scratch] == ["between0", "between1"]
    assert [launch.symbol.partition("_")[0] for launch in candidate.plan.launches] == ["part0", "part1"] * 2


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("name", CASES)
def test_every_first_schedule_comes_back(name: str, target: str) -> None:
    graph = graph_of(CASES[name])
    first = initial(graph, target, DEVICES[target])
    schedules = [*first, *neighbours(graph, first[0], DEVICES[target])]
    assert [read_schedule(target, schedule.text()) for schedule in schedules] == schedules
    check_read_back(graph, schedules)


def test_a_schedule_for_other_parts_is_refused() -> None:
    graph = _graph(lambda x: F.softmax(F.softmax(x, 0), 1), torch.rand(64, 96))
    for schedule in (make("cpu", "rows/again"), in_parts("cpu", (make("cpu", "cols/tile"),))):
        with pytest.raises(Unsupported):
            emit(graph, schedule)
    with pytest.raises(Unsupported, match="rows/again for a cols nest"):
        emit(graph, in_parts("cpu", (make("cpu", "rows/again"), make("cpu", "cols/tile"))))


@pytest.mark.parametrize(
    "line", ["parts", "part0: pointwise; pointwise", "part0: pointwise; part2: pointwise", "part0: "]
)
def test_bad_lines_of_parts_are_named(line: str) -> None:
    with pytest.raises(Unsupported, match="schedule"):
        read_schedule("cpu", line)


def test_one_part_is_varied_at_a_time_the_dear_one_first() -> None:
    """If the cost is a sum over the parts, the search reduces it in both of them."""
    graph = _graph(lambda x: F.softmax(F.softmax(x, 0), 1), torch.rand(640, 1000))

    def cost(schedule: Schedule) -> float:
        hints = [dict(part.params)["hint"] for part in schedule.parts]
        return 4.0 - hints[0] - 0.5 * hints[1]

    moves, tried = play(graph, "cuda", cost)
    assert moves[-1].finished
    assert len({schedule for schedule, _ in tried}) == len(tried) <= MOST["cuda"]
    first = tried[0][0]
    for schedule, _ in tried[1:6]:
        assert sum(a != b for a, b in zip(schedule.parts, first.parts, strict=True)) == 1
    assert min(ms for _, ms in tried if ms is not None) == 2.5


def _with_operator(graph: OpGraph, op: str) -> OpGraph:
    return replace(graph, nodes=(*graph.nodes[:-1], replace(graph.nodes[-1], op=op)))


#: A batch norm that changes its statistics.
TRAINED = """dims B=4
input x0 f32[B,5]
buffer b0 f32[5] running_mean
buffer b1 f32[5] running_var
%n0 = batch_norm(%x0, none, none, %b0, %b1, true, 0.1, 1e-05, true) f32[B,5]
return %n0"""


def test_what_fits_no_part_is_named() -> None:
    graph = _graph(lambda x: F.softmax(F.softmax(x, 0), 1).relu(), torch.rand(64, 96))
    assert classify(graph, "cpu") is Family.parts
    alone = _graph(lambda x: F.softmax(x, 0), torch.rand(64, 96))
    assert classify(_with_operator(alone, "sort"), "cpu").startswith("operator sort: nothing is left")
    assert {part.kind for part in cut(_with_operator(graph, "sort"), "cpu").parts} == {"kernel", "residual"}
    trained = read_graph(TRAINED.split("\n"))
    assert classify(trained, "cpu") == "batch_norm in training mode: it changes its running statistics"


def test_a_name_that_no_kernel_has_is_refused_in_parts_too() -> None:
    graph = _graph(lambda x, w: torch.softmax(torch.softmax(x, 0), 1) * w, torch.randn(8, 16), torch.randn(16))
    lines = [line.replace("input x1", "param weight").replace("%x1", "%weight") for line in write_graph(graph)]
    with pytest.raises(Unsupported, match="input name 'weight'"):
        partition(read_graph(lines), "cpu")


@pytest.mark.parametrize("name", CASES)
def test_first_schedule(name: str, tmp_path: Path) -> None:
    model, args = CASES[name]
    assert (classify(export(model, *args), "cpu") is Family.parts) == (name in COMPOSITES)
    check_on_cpu(model, args, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cross entropy half", "softmaxes", "several shapes", "half chain"])
def test_all_schedules(name: str, tmp_path: Path) -> None:
    model, args = COMPOSITES[name]
    graph = export(model, *args)
    first = initial(graph, "cpu", cpu.facts())
    for schedule in [*first, *neighbours(graph, first[0], cpu.facts())]:
        check(model, args, Built(graph, schedule, tmp_path))


def test_what_a_library_fuses_is_one_part_and_the_rest_is_ours() -> None:
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32), nn.GELU(), nn.LayerNorm(32))
    parts = partition(export(model, torch.rand(20, 64)), "cuda")
    assert [part.kind for part in parts.parts] == ["library", "library", "kernel"]
    assert _operators(parts) == [["linear", "relu"], ["linear"], ["gelu", "layer_norm"]]


def test_a_reshape_between_parts_is_no_part() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(392, 10))
    found = partition(export(model, torch.rand(20, 3, 16, 16)), "cuda")
    assert [part.kind for part in found.parts] == ["library", "kernel", "library"]
    (reshaped,) = found.same.keys() & {*found.parts[2].inputs}
    assert found.same[reshaped] == found.parts[1].outputs[0]


def test_heads_are_written_where_a_library_can_read_them() -> None:
    cut_parts = partition(export(ATTENTION, torch.rand(2, 10, 64)), "cuda")
    named = list(zip((part.kind for part in cut_parts.parts), _operators(cut_parts), strict=True))
    products = [operators for kind, operators in named if kind == "library"]
    assert products == [["linear"], ["transpose", "matmul"], ["matmul"], ["linear", "add"]]
    assert sum(operators.count("ka_copy") for _, operators in named) == 4
    assert ("kernel", ["div", "softmax"]) in named


def test_candidates_with_library_calls_come_back() -> None:
    graph = export(ATTENTION, torch.rand(2, 10, 64))
    first = initial(graph, "cuda", DEVICES["cuda"])
    for schedule in [*first, *neighbours(graph, first[0], DEVICES["cuda"])]:
        candidate = emit(graph, schedule)
        assert parse(candidate) == (graph, schedule)
        names = {spec.name for spec in candidate.plan.buffers}
        calls = [launch for launch in candidate.plan.launches if launch.library]
        assert len(calls) == 4
        assert all(value in names for launch in calls for field, value in launch.args if field in ("a", "b", "out"))
