"""Tests that emit and parse are inverses, and that an edited candidate does not count as the generator's."""

from __future__ import annotations

import msgspec
import pytest
import torch

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.graph_text import read_graph, write_graph
from kernel_assistant.generator.ir.schedule import make, read_schedule
from kernel_assistant.generator.loops.checked import checked_nest
from kernel_assistant.generator.loops.nest import build_nest
from kernel_assistant.generator.parse import parse
from kernel_assistant.generator.plan.partition import cut
from kernel_assistant.generator.search.search import initial
from kernel_assistant.generator.search.workload import measure
from kernel_assistant.generator.support import Family, classify
from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.graph import GraphInput, Operand
from tests.generator.checks import check_read_back
from tests.generator.harness import DEVICES, Function, export, graph_of
from tests.generator.modules import CASES


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("name", CASES)
def test_every_first_schedule_comes_back(name: str, target: str) -> None:
    graph = graph_of(CASES[name])
    assert classify(graph, target) == Family(name.partition(":")[0])
    schedules = initial(graph, target, DEVICES[target])
    check_read_back(graph, schedules)
    assert [emit(graph, schedule) for schedule in schedules] == [emit(graph, schedule) for schedule in schedules]


def test_what_was_emitted_before_changes_nothing() -> None:
    turned = export(Function(lambda x: x.permute(0, 2, 3, 1).contiguous() * 2), torch.zeros(2, 3, 64, 64))
    first = initial(turned, "cuda", DEVICES["cuda"])
    texts = [emit(turned, schedule) for schedule in first]
    parts = export(Function(lambda x: x.cumsum(-1).flip(-1).softmax(-1)), torch.zeros(8, 512))
    emit(parts, initial(parts, "cuda", DEVICES["cuda"])[0])
    for part in cut(parts, "cuda").parts:
        alone = emit(part.graph, initial(part.graph, "cuda", DEVICES["cuda"])[0])
        assert not any(launch.symbol.startswith("part") for launch in alone.plan.launches)
    assert [emit(turned, schedule) for schedule in first] == texts
    shape = measure(checked_nest(turned, "cuda"), turned.dims)
    assert shape == measure(build_nest(turned), turned.dims)


def test_an_edited_candidate_is_not_ours() -> None:
    graph = graph_of(CASES["rows: softmax even"])
    candidate = emit(graph, make("cpu", "rows/again"))
    source = candidate.sources["kernel.cpp"]
    edited = {**candidate.sources, "kernel.cpp": source.replace("ka_exp", "expf")}
    assert edited != candidate.sources
    assert parse(msgspec.structs.replace(candidate, sources=edited)) is None
    plan = msgspec.structs.replace(candidate.plan, schedule="rows/keep")
    assert parse(msgspec.structs.replace(candidate, plan=plan)) is None
    assert parse(msgspec.structs.replace(candidate, sources={"mine.cpp": "int x;"})) is None


def test_words_that_look_like_something_else() -> None:
    spec = TensorSpec(dtype="f32", shape=("B", "8"))
    words: tuple[Operand, ...] = ("%x0", "none", "true", "1", "-inf", "tanh", "a, b=[", "")
    operands = (*words, None, True, 1, 1.0, float("-inf"), ["B*2", -1, None])
    node = Node(name="n0", op="gelu", args=operands, kwargs={"approximate": "none", "dims": [1, 2]}, spec=spec)
    inputs = (GraphInput(name="x0", spec=spec), GraphInput(name="p0", spec=spec, kind="param", path="block.0.weight"))
    graph = OpGraph(dims={"B": 4}, inputs=inputs, nodes=(node,), outputs=("n0",))
    assert read_graph(write_graph(graph)) == graph


@pytest.mark.parametrize(
    "line", ["rows/reg block", "rows/none", "rows/reg colour=3", "rows/reg block=x", "rows/reg block=-1"]
)
def test_bad_schedules_are_named(line: str) -> None:
    with pytest.raises(Unsupported, match="schedule"):
        read_schedule("cuda", line)


def test_schedule_lines_come_back() -> None:
    schedule = make("cuda", "rows/reg", cluster=4, items=3)
    assert read_schedule("cuda", schedule.text()) == schedule
    assert read_schedule("cuda", "rows/reg cluster=4 items=3") == schedule


def test_dropout_in_training_mode_is_named() -> None:
    graph = read_graph(["dims", "input x0 f32[4,8]", "%n0 = dropout(%x0, 0.5, true) f32[4,8]", "return %n0"])
    assert classify(graph, "cpu") == "dropout in training mode"
