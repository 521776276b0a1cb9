"""Parts of a graph that are alike have one schedule and are varied together."""

from __future__ import annotations

import torch
from torch import nn

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.parse import parse
from kernel_assistant.generator.plan.partition import cut
from kernel_assistant.generator.search.search import initial, neighbours
from kernel_assistant.generator.search.search_parts import alike
from kernel_assistant.records import OpGraph
from tests.generator.harness import export
from tests.generator.test_cuda import H200


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
    graph = layers()
    found = cut(graph, "cuda")
    kernels = [number for number, part in enumerate(found.parts) if part.kind == "kernel"]
    kinds = [kind for kind in alike(found) if kind[0] in kernels]
    assert sorted(map(len, kinds)) == [1, 3]
    assert sorted(number for kind in kinds for number in kind) == kernels
    assert kinds[0] == kernels[:3]


def test_they_have_one_schedule_and_are_varied_together() -> None:
    graph = layers()
    (first, second) = (kind for kind in alike(cut(graph, "cuda")) if len(kind) == 3 or kind[0] == 7)
    for schedule in initial(graph, "cuda", H200):
        assert len({schedule.parts[number] for number in first}) == 1
    safe = initial(graph, "cuda", H200)[0]
    changed = neighbours(graph, safe, H200)
    assert changed
    moved = [{number for number, part in enumerate(other.parts) if part != safe.parts[number]} for other in changed]
    assert set(map(frozenset, moved)) == {frozenset(first), frozenset(second)}
    candidate = emit(graph, changed[0])
    assert parse(candidate) == (graph, changed[0])


def test_the_costliest_kind_comes_first() -> None:
    graph = layers()
    found = cut(graph, "cuda")
    costs = [
        sum(found.parts[number].seconds for number in kind)
        for kind in alike(found)
        if found.parts[kind[0]].kind == "kernel"
    ]
    assert costs == sorted(costs, reverse=True)
