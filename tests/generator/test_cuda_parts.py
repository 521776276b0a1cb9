"""CUDA candidates with several parts, positions and losses: a sample compiles; on a GPU, all of them are right.

All candidates of this file are compiled at once, on all cores, before the first GPU test.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.search.search import initial, neighbours
from kernel_assistant.records import OpGraph
from tests.generator.checks import check, check_compiles
from tests.generator.harness import H200, Built, binary_of, compile_all, export, graph_of, resized
from tests.generator.test_parts import ATTENTION, CASES

pytestmark = pytest.mark.builds

#: Schedules of each case besides the first.
MORE = 2

Builds = dict[str, list[tuple[OpGraph, Schedule, Path | AssertionError]]]


def _schedules(name: str, graph: OpGraph) -> list[Schedule]:
    """The first schedule and some that the search would reach; the same ones in each run."""
    first = initial(graph, "cuda", H200)
    others = list(dict.fromkeys([*first[1:], *neighbours(graph, first[0], H200)]))
    return [first[0], *random.Random(name).sample(others, min(MORE, len(others)))]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cross entropy half", "all positions", "half chain"])
def test_a_sample_compiles(name: str, tmp_path: Path) -> None:
    graph = graph_of(CASES[name])
    check_compiles(graph, initial(graph, "cuda", H200)[0], tmp_path)


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Builds:
    graphs = {name: graph_of(CASES[name]) for name in CASES}
    jobs = [(name, schedule) for name, graph in graphs.items() for schedule in _schedules(name, graph)]
    folders = [tmp_path_factory.mktemp("build") for _ in jobs]
    binaries = compile_all([emit(graphs[name], schedule) for name, schedule in jobs], folders)
    found: Builds = {name: [] for name in CASES}
    for (name, schedule), binary in zip(jobs, binaries, strict=True):
        found[name].append((graphs[name], schedule, binary))
    return found


@pytest.mark.gpu
def test_products_of_a_library_between_kernels(tmp_path: Path) -> None:
    model, args = ATTENTION, (torch.rand(2, 10, 64),)
    graph = export(model, *args)
    built = Built(graph, initial(graph, "cuda", H200)[0], tmp_path)
    check(model, args, built, bound=1e-4)
    check(model, resized(args, 5), built, bound=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_right_on_the_gpu(name: str, builds: Builds, tmp_path: Path) -> None:
    model, args = CASES[name]
    sizes = {arg.shape[0] for arg in args if arg.dim()}
    for graph, schedule, binary in builds[name]:
        built = Built(graph, schedule, tmp_path, binary_of(binary))
        check(model, args, built)
        if len(graph.dims) == 1 and len(sizes) == 1 and all(arg.is_contiguous() for arg in args):
            check(model, resized(args, args[0].shape[0] * 2 + 1), built)
