"""CUDA candidates of several parts, of positions and of losses: a sample compiles; on a GPU, all of them are right.

All candidates of this file are compiled at once, on all cores, before the first GPU test.
"""

from __future__ import annotations

import os
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.schedule import Schedule
from kernel_assistant.generator.search import initial, neighbours
from kernel_assistant.records import OpGraph
from tests.generator.composites import COMPOSITES, SINGLE
from tests.generator.harness import Built, check, compile_candidate, export, resized
from tests.generator.test_cuda import H200
from tests.generator.test_parts_library import Attention

CASES = {**SINGLE, **COMPOSITES}
#: Schedules of each case besides the first.
MORE = 2


def _graph(name: str) -> OpGraph:
    model, args = CASES[name]
    return export(model, *args)


def _schedules(name: str, graph: OpGraph) -> list[Schedule]:
    """The first, and some that the search would come to; the same ones every time."""
    first = initial(graph, "cuda", H200)
    others = list(dict.fromkeys([*first[1:], *neighbours(graph, first[0], H200)]))
    return [first[0], *random.Random(name).sample(others, min(MORE, len(others)))]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("name", ["cross entropy half", "all positions", "half chain"])
def test_a_sample_compiles(name: str, tmp_path: Path) -> None:
    graph = _graph(name)
    compile_candidate(emit(graph, initial(graph, "cuda", H200)[0]), tmp_path)


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Built]]:
    graphs = {name: _graph(name) for name in CASES}
    jobs = [(name, schedule) for name, graph in graphs.items() for schedule in _schedules(name, graph)]
    folders = [tmp_path_factory.mktemp("build") for _ in jobs]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        candidates = [emit(graphs[name], schedule) for name, schedule in jobs]
        binaries = list(pool.map(compile_candidate, candidates, folders))
    found: dict[str, list[Built]] = {name: [] for name in CASES}
    for (name, schedule), folder, binary in zip(jobs, folders, binaries, strict=True):
        found[name].append(Built(graphs[name], schedule, folder, binary))
    return found


@pytest.mark.gpu
def test_products_of_a_library_between_kernels(tmp_path: Path) -> None:
    model, args = Attention(), (torch.rand(2, 10, 64),)
    graph = export(model, *args)
    built = Built(graph, initial(graph, "cuda", H200)[0], tmp_path)
    check(model, args, built, bound=1e-4)
    check(model, resized(args, 5), built, bound=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_right_on_the_gpu(name: str, builds: dict[str, list[Built]]) -> None:
    model, args = CASES[name]
    sizes = {arg.shape[0] for arg in args if arg.dim()}
    for built in builds[name]:
        check(model, args, built)
        if len(built.graph.dims) == 1 and len(sizes) == 1 and all(arg.is_contiguous() for arg in args):
            check(model, resized(args, args[0].shape[0] * 2 + 1), built)
