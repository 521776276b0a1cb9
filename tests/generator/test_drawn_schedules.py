"""Schedules drawn at random for learning."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
import torch

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.named_graph import named_graph
from kernel_assistant.generator.ir.schedule import read_schedule
from kernel_assistant.generator.search.drawn import drawn
from kernel_assistant.generator.search.ladders import LADDERS
from kernel_assistant.generator.search.search import first_guess, initial
from kernel_assistant.records.canonical import canonical
from tests.generator.harness import DEVICES, Function, export
from tests.generator.modules import CASES


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("name", list(CASES)[::3])
def test_drawn_schedules_can_be_written(name: str, target: str) -> None:
    model, args = CASES[name]
    graph = export(model, *args)
    found = drawn(graph, target, DEVICES[target], Random(1), 2)
    assert found and len(dict(found)) == len(found)
    for schedule, candidate in found:
        assert candidate == emit(graph, read_schedule(target, schedule.text()))


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("name", list(CASES)[1::4])
def test_the_first_guess_is_that_of_a_search(name: str, target: str) -> None:
    model, args = CASES[name]
    graph = named_graph(canonical(export(model, *args)))
    assert first_guess(graph, target, DEVICES[target]) == initial(graph, target, DEVICES[target])[0]


def test_a_seed_gives_the_same_schedules() -> None:
    model, args = CASES["rows: softmax even"]
    first, second = (drawn(export(model, *args), "cuda", DEVICES["cuda"], Random(1), 6) for _ in range(2))
    assert first == second and len(first) == 6


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_every_value_of_a_ladder_is_drawn(target: str) -> None:
    graph = export(Function(lambda x: torch.relu(x) * 2), torch.zeros(64, 4096))
    seen = Counter(
        (name, value)
        for seed in range(60)
        for schedule, _ in drawn(graph, target, DEVICES[target], Random(seed), 4)
        if schedule.form == "pointwise"
        for name, value in schedule.params
    )
    ladder = LADDERS[target]["pointwise"]
    assert {(name, value) for name, values in ladder.items() for value in values} <= seen.keys()


def test_parts_that_are_alike_have_one_schedule() -> None:
    def layers(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = torch.softmax(x.cumsum(-1).flip(-1), -1)
        return x

    graph = export(Function(layers), torch.zeros(64, 2048))
    for schedule, _ in drawn(named_graph(canonical(graph)), "cuda", DEVICES["cuda"], Random(3), 4):
        assert schedule.form == "parts" and len(set(schedule.parts)) < len(schedule.parts)
