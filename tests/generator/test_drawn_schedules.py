"""Schedules drawn at random for learning; parts of a graph that are alike have one schedule and are varied together."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
import torch
from torch import nn

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.named_graph import named_graph
from kernel_assistant.generator.ir.schedule import read_schedule
from kernel_assistant.generator.plan.partition import cut
from kernel_assistant.generator.search.drawn import drawn
from kernel_assistant.generator.search.ladders import LADDERS
from kernel_assistant.generator.search.search import first_guess, initial, neighbours
from kernel_assistant.generator.search.search_parts import alike
from kernel_assistant.records import OpGraph
from kernel_assistant.records.canonical import canonical
from tests.generator.checks import check_read_back
from tests.generator.harness import DEVICES, H200, Function, export, graph_of
from tests.generator.modules import CASES


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("name", list(CASES)[::3])
def test_drawn_schedules_can_be_written(name: str, target: str) -> None:
    graph = graph_of(CASES[name])
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


class Layers(nn.Module):
    """Products with a norm behind each: three of the same width, then one of another, with another parameter each."""

    def __init__(self) -> None:
        super().__init__()
        widths = [(64, 64)] * 3 + [(64, 96)]
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(before, after), nn.LayerNorm(after), nn.Tanh()) for before, after in widths
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def layers() -> OpGraph:
    return export(Layers(), torch.randn(512, 64))


def test_parts_are_alike_whatever_their_values_are_called() -> None:
    found = cut(layers(), "cuda")
    kernels = [number for number, part in enumerate(found.parts) if part.kind == "kernel"]
    kinds = [kind for kind in alike(found) if kind[0] in kernels]
    assert sorted(map(len, kinds)) == [1, 3]
    assert sorted(number for kind in kinds for number in kind) == kernels
    assert kinds[0] == kernels[:3]


def test_they_have_one_schedule_and_are_varied_together() -> None:
    graph = layers()
    (first, second) = (kind for kind in alike(cut(graph, "cuda")) if len(kind) == 3 or kind[0] == 7)
    safe, *others = initial(graph, "cuda", H200)
    for schedule in (safe, *others):
        assert len({schedule.parts[number] for number in first}) == 1
    changed = neighbours(graph, safe, H200)
    assert changed
    moved = [{number for number, part in enumerate(other.parts) if part != safe.parts[number]} for other in changed]
    assert set(map(frozenset, moved)) == {frozenset(first), frozenset(second)}
    check_read_back(graph, changed[:1])


def test_the_costliest_kind_comes_first() -> None:
    parted = cut(layers(), "cuda")
    kernels = [kind for kind in alike(parted) if parted.parts[kind[0]].kind == "kernel"]
    costs = [sum(parted.parts[number].seconds for number in kind) for kind in kernels]
    assert costs == sorted(costs, reverse=True)
