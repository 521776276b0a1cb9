"""What tasks are like, without torch."""

from __future__ import annotations

import re
from random import Random

import pytest

from kernel_assistant.records import OpGraph
from kernel_assistant.records.graph import references
from kernel_assistant_training.synth import fitted, sample
from kernel_assistant_training.synth.layouts import elementwise_strides
from kernel_assistant_training.synth.memory import WINDOW, traffic
from kernel_assistant_training.synth.sampler import FAMILIES, LEVELS, sampled
from kernel_assistant_training.synth.sizes import FREE, size_text
from kernel_assistant_training.synth.steps import STEPS


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


def test_equal_seeds_give_equal_tasks() -> None:
    assert [graph.hash() for graph in _tasks(50)] == [graph.hash() for graph in _tasks(50)]


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_is_a_number_of_steps(level: int) -> None:
    random = Random(level)
    assert all(len(sampled(random, level)[1]) == level for _ in range(50))


def test_every_family_has_steps_and_every_step_a_family() -> None:
    assert set(FAMILIES) == set(STEPS)


@pytest.mark.parametrize("target", list(WINDOW))
def test_fitted_tasks_move_as_much_as_the_window_says(target: str) -> None:
    random = Random(3)
    found = [one for graph in _tasks(200) if (one := fitted(graph, target, random)) is not None]
    low, high = WINDOW[target]
    assert len(found) > 150
    assert all(low <= traffic(graph) <= high for graph in found)


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
    assert sum(len(outputs) > 1 for outputs in never) < 20  # positions beside the largest values
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
    """In nearly all of these tasks an operator reads two values that operators have made, neither from the other."""
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
