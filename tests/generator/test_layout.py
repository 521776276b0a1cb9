"""Joining, padding, rolling, repeating and resizing: the CPU compared with PyTorch, and the emitted text for both
targets.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.parse import parse
from kernel_assistant.generator.search.search import initial
from kernel_assistant.targets import cpu
from kernel_assistant.targets.base import DeviceFacts
from tests.generator.cuda_on_host import OnHost
from tests.generator.harness import Built, check, compile_candidate, export, resized
from tests.generator.window_modules import LAYOUT

pytestmark = pytest.mark.sampled(3)

H200 = DeviceFacts(target="cuda", name="g", arch="sm_90", cores=132, cache_bytes=50 << 20)


@pytest.mark.parametrize("name", LAYOUT)
def test_first_schedule(name: str, tmp_path: Path) -> None:
    model, args = LAYOUT[name]
    graph = export(model, *args)
    built = Built(graph, initial(graph, "cpu", cpu.facts())[0], tmp_path)
    check(model, args, built)
    if list(graph.dims) == ["B"]:
        check(model, resized(args, 1), built)
        check(model, resized(args, args[0].shape[0] * 2 + 1), built)


@pytest.mark.parametrize("name", LAYOUT)
def test_schedules_come_back(name: str) -> None:
    model, args = LAYOUT[name]
    graph = export(model, *args)
    for target, device in (("cpu", cpu.facts()), ("cuda", H200)):
        for schedule in initial(graph, target, device):
            assert parse(emit(graph, schedule)) == (graph, schedule)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("name", ["stack of steps", "stack of steps behind", "cat of lookups"])
def test_a_stack_in_pieces_on_cuda(name: str, tmp_path: Path) -> None:
    """The sanitizers end a program that writes a piece outside its place."""
    model, args = LAYOUT[name]
    graph = export(model, *args)
    check(model, args, OnHost(graph, initial(graph, "cuda", H200)[0], tmp_path))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize(
    "name", ["cat", "cat even", "stack last", "stack of steps", "pad reflect", "laplace", "bilinear size", "transposed"]
)
def test_cuda_compiles(name: str, tmp_path: Path) -> None:
    model, args = LAYOUT[name]
    graph = export(model, *args)
    for schedule in initial(graph, "cuda", H200)[:2]:
        compile_candidate(emit(graph, schedule), tmp_path)
