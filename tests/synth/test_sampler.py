"""Properties of tasks, without torch."""

from __future__ import annotations

import re
from collections import Counter
from random import Random

import pytest

from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.graph import GraphInput, references
from kernel_assistant_training.synth import fitted, sample
from kernel_assistant_training.synth.features import features
from kernel_assistant_training.synth.layouts import elementwise_strides
from kernel_assistant_training.synth.memory import LARGEST, WINDOW, largest, traffic
from kernel_assistant_training.synth.sampler import FAMILIES, LEVELS, sampled
from kernel_assistant_training.synth.sizes import FREE, size_text
from kernel_assistant_training.synth.steps import STEPS


def _f32(*shape: str) -> TensorSpec:
    return TensorSpec(dtype="f32", shape=shape)


def _tasks(count: int) -> list[OpGraph]:
    random = Random(7)
    return [sample(random, LEVELS[number % len(LEVELS)]) for number in range(count)]


def test_everything_is_read_and_results_depend_on_inputs() -> None:
    for graph in _tasks(500):
        read = {name for node in graph.nodes for name in references(node)} | set(graph.outputs)
        assert {value.name for value in graph.inputs} | {node.name for node in graph.nodes} == read
        reached = {value.name for value in graph.inputs if value.kind == "input"}
        for node in graph.nodes:
            if not reached.isdisjoint(references(node)):
                reached.add(node.name)
        assert set(graph.outputs) <= reached


def test_values_are_named_by_first_use() -> None:
    for graph in _tasks(300):
        met: dict[str, list[str]] = {"p": [], "b": [], "n": []}
        for node in graph.nodes:
            for name in [*references(node), node.name]:
                if name[0] in met and name not in met[name[0]]:
                    met[name[0]].append(name)
        for letter, names in met.items():
            assert names == [f"{letter}{number}" for number in range(len(names))]


def test_sizes_have_one_free_dimension_in_front() -> None:
    for graph in _tasks(300):
        assert list(graph.dims) == ["B"]
        assert graph.dims["B"] >= 2
        for value in graph.inputs:
            if value.kind == "input" and len(value.spec.shape) > 1 and value.spec.shape[0] == "B":
                assert all(size.isdigit() for size in value.spec.shape[1:])
        assert not re.search(r"[\[,]\d{8}", graph.text())


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_is_a_number_of_steps(level: int) -> None:
    random = Random(level)
    assert all(len(sampled(random, level)[1]) == level for _ in range(50))


def test_every_family_has_steps_and_every_step_a_family() -> None:
    assert set(FAMILIES) == set(STEPS)


@pytest.mark.parametrize("target", list(WINDOW))
def test_fitted_tasks_move_as_much_as_the_window_says_and_have_no_value_above_the_largest(target: str) -> None:
    random = Random(1)
    drawn = (fitted(sample(random, 1 + number % 5), target, Random(number)) for number in range(800))
    fitting = [graph for graph in drawn if graph is not None]
    low, high = WINDOW[target]
    assert len(fitting) > 600
    assert all(low <= traffic(graph) <= high and largest(graph) <= LARGEST[target] for graph in fitting)


def test_no_value_on_the_way_is_much_larger_than_the_traffic() -> None:
    """The sum of a product of two vectors: its inputs and output are small, but its intermediate value is large."""

    def outer(width: str) -> OpGraph:
        left = GraphInput(name="x0", kind="input", spec=_f32("B", width, "1"))
        right = GraphInput(name="x1", kind="input", spec=_f32("B", "1", "65536"))
        product = Node(name="n0", op="mul.Tensor", args=("%x0", "%x1"), spec=_f32("B", width, "65536"))
        largest_one = Node(name="n1", op="amax", args=("%n0", [1, 2]), spec=_f32("B", "1"))
        return OpGraph(dims={"B": 2}, inputs=(left, right), nodes=(product, largest_one), outputs=("n1",))

    for seed in range(20):
        found = fitted(outer("8"), "cpu", Random(seed))
        assert found is not None
        assert largest(found) <= LARGEST["cpu"]
        assert found.dims["B"] <= LARGEST["cpu"] // (8 * 65536 * 4)
        # With B = 1 it is too large already.
        assert fitted(outer("1024"), "cpu", Random(seed)) is None


def test_strides_of_elementwise_results() -> None:
    turned, straight = ((FREE, 7, 5), (35, 1, 7)), ((FREE, 7, 5), None)
    assert elementwise_strides([turned]) == turned
    assert elementwise_strides([turned, ((5,), None)]) == turned
    assert elementwise_strides([straight, turned]) == straight
    assert elementwise_strides([((FREE, 7, 5), (70, 10, 2))]) == straight


def test_free_sizes_are_written_as_products() -> None:
    assert [size_text(size) for size in (768, FREE, FREE * 16)] == ["768", "B", "B*16"]


def test_values_from_on_the_way_are_returned_as_often_as_asked() -> None:
    random = Random(11)
    never, often = ([sampled(random, 3, more)[0].outputs for _ in range(200)] for more in (0.0, 0.9))
    assert sum(len(outputs) > 1 for outputs in never) < 40  # those that steps return themselves
    assert sum(len(outputs) > 1 for outputs in often) > 120
    assert any(len(outputs) > 2 for outputs in often)
    assert all(len(set(outputs)) == len(outputs) for outputs in (*never, *often))


def _drawn(family: str, count: int) -> list[OpGraph]:
    random, found = Random(family), list[OpGraph]()
    while len(found) < count:
        graph, steps = sampled(random, 1 + len(found) % 3, 0.0)
        if any(step.family == family for step in steps):
            found.append(graph)
    return found


def test_branches_meet() -> None:
    """In nearly all of these tasks an operator reads two computed values, neither of which depends on the other."""
    met = 0
    for graph in _drawn("branch", 200):
        above: dict[str, set[str]] = {}
        for node in graph.nodes:
            read = list(references(node))
            above[node.name] = {*read, *(name for one in read for name in above.get(one, ()))}
        pairs = [[name for name in references(node) if name in above] for node in graph.nodes]
        apart = [len(p) == 2 and p[0] not in above[p[1]] and p[1] not in above[p[0]] for p in pairs]
        met += any(apart) or len(graph.outputs) > 1
    assert met > 120


def test_operands_are_broadcast_in_inner_dimensions() -> None:
    narrow = 0
    for graph in _drawn("inner", 200):
        shapes = [graph.spec(name).shape for node in graph.nodes for name in references(node)]
        narrow += any("1" in shape for shape in shapes)
    assert narrow > 150


def test_inputs_come_in_any_order() -> None:
    orders = set()
    for graph in _drawn("branch", 200):
        first = [name for node in graph.nodes for name in references(node) if name[0] == "x"]
        orders.add(tuple(dict.fromkeys(first)))
    assert {("x0", "x1"), ("x1", "x0")} <= orders


def test_batches_and_rows_are_small_and_odd_at_times() -> None:
    graphs = _tasks(1000)
    assert any(graph.dims["B"] <= 8 for graph in graphs)
    widths = {value.spec.shape[-1] for graph in graphs for value in graph.inputs[:1] if value.spec.shape}
    assert {"3", "7", "50257"} <= widths


def test_structure_of_users_modules_is_drawn() -> None:
    found = Counter(name for graph in _tasks(600) for name in features(graph))
    common = ("2 inputs", "3 inputs", "2 results", "3 results", "2 inputs with steps of their own")
    assert all(found[name] > 15 for name in common), found
    rare = (
        *("3 inputs with steps of their own", "inputs of other inner sizes", "two reductions of one value"),
        *("an input with 1 in inner dimensions", "a parameter with 1 in inner dimensions"),
        *("results of several dtypes", "a computed index", "values are joined"),
    )
    assert all(found[name] > 5 for name in rare), found


def test_features_of_a_graph() -> None:
    given = (
        GraphInput(name="x0", spec=_f32("B", "8", "4")),
        GraphInput(name="x1", spec=_f32("B", "1", "4")),
        GraphInput(name="x2", spec=_f32("B", "6", "4")),
    )
    nodes = (
        Node(name="n0", op="exp", args=("%x1",), spec=_f32("B", "1", "4")),
        Node(name="n1", op="add.Tensor", args=("%x0", "%n0"), spec=_f32("B", "8", "4")),
        Node(name="n2", op="argmax", args=("%n1", -1, True), spec=TensorSpec(dtype="i64", shape=("B", "8", "1"))),
        Node(name="n3", op="gather", args=("%n1", -1, "%n2"), spec=_f32("B", "8", "1")),
        Node(name="n4", op="mean.dim", args=("%n1", [-1], True), spec=_f32("B", "8", "1")),
        Node(name="n5", op="cat", args=(["%x0", "%x2"], 1), spec=_f32("B", "14", "4")),
    )
    graph = OpGraph(dims={"B": 2}, inputs=given, nodes=nodes, outputs=("n2", "n3", "n4", "n5"))
    assert features(graph) == {
        *("3 inputs", "inputs of other inner sizes", "1 inputs with steps of their own"),
        *("an input with 1 in inner dimensions", "a value broadcast in inner dimensions"),
        *("inputs meet at two places or more", "a computed value read twice", "two reductions of one value"),
        *("a computed index", "values are joined"),
        *("4 results", "results of several dtypes", "results of several shapes"),
    }
