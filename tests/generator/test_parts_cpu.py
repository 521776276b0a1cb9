"""Graphs with several parts, positions and losses on the CPU, compared with float64."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_assistant.generator.search.search import initial, neighbours
from kernel_assistant.generator.support import Family, classify
from kernel_assistant.targets import cpu
from tests.generator.composites import COMPOSITES, SINGLE
from tests.generator.harness import Built, check, export, resized

pytestmark = pytest.mark.sampled(3)

CASES = {**SINGLE, **COMPOSITES}


@pytest.mark.parametrize("name", CASES)
def test_first_schedule(name: str, tmp_path: Path) -> None:
    model, args = CASES[name]
    graph = export(model, *args)
    assert (classify(graph, "cpu") is Family.parts) == (name in COMPOSITES)
    built = Built(graph, initial(graph, "cpu", cpu.facts())[0], tmp_path)
    check(model, args, built)
    sizes = {arg.shape[0] for arg in args if arg.dim()}
    if "B" in graph.dims and len(graph.dims) == 1 and len(sizes) == 1 and all(arg.is_contiguous() for arg in args):
        check(model, resized(args, 1), built)
        check(model, resized(args, args[0].shape[0] * 2 + 1), built)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cross entropy half", "softmaxes", "several shapes", "half chain"])
def test_all_schedules(name: str, tmp_path: Path) -> None:
    model, args = COMPOSITES[name]
    graph = export(model, *args)
    first = initial(graph, "cpu", cpu.facts())
    for schedule in [*first, *neighbours(graph, first[0], cpu.facts())]:
        check(model, args, Built(graph, schedule, tmp_path))
