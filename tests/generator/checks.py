"""What tests assert about candidates: results as exact as PyTorch's, text that is read back, and that they compile."""

from __future__ import annotations

import copy
import random
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from kernel_assistant.generator.emit import canonical_text, emit
from kernel_assistant.generator.ir.named_graph import named_graph
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.parse import parse
from kernel_assistant.generator.search.drawn import drawn
from kernel_assistant.generator.search.search import initial, neighbours
from kernel_assistant.records import OpGraph
from kernel_assistant.records.canonical import canonical
from tests.generator.harness import (
    H200,
    Built,
    Tensors,
    as_list,
    bindings,
    built_first,
    built_on_cpu,
    compile_candidate,
    export,
    resized,
)


def check(model: torch.nn.Module, args: Tensors, built: Built, bound: float = 1e-5) -> None:
    """Compares with a float64 run of the module. Errors are relative to the largest value, and PyTorch's own error is
    allowed in addition.
    """
    with torch.no_grad():
        eager = as_list(model(*args))
        wide = copy.deepcopy(model).double()
        want = as_list(wide(*(arg.double() if arg.is_floating_point() else arg for arg in args)))
    got = built(bindings(built.graph, model, args))
    assert len(got) == len(want)
    for place, (mine, theirs, exact) in enumerate(zip(got, eager, want, strict=True)):
        assert mine.shape == theirs.shape, place
        assert mine.dtype == theirs.dtype, place
        if not mine.dtype.is_floating_point:
            assert torch.equal(mine, theirs), place
            continue
        assert torch.equal(torch.isnan(mine), torch.isnan(theirs)), place
        half = mine.dtype in (torch.bfloat16, torch.float16)
        finite = torch.isfinite(exact)
        scale = torch.where(finite, exact.abs(), 0).max() if exact.numel() else 0.0
        allowed = 2 * (theirs.double() - exact).abs() + (1e-2 if half else bound) * scale
        error = (mine.double() - exact).abs()
        bad = (error > allowed) & finite & torch.isfinite(theirs)
        assert not bad.any(), f"output {place}: {int(bad.sum())} of {bad.numel()} wrong, worst {error[bad].max():.3g}"


def check_sizes(model: torch.nn.Module, args: Tensors, built: Built) -> None:
    """`check` at the exported sizes and, where the first dimension alone is free, with one row and with more rows."""
    check(model, args, built)
    if list(built.graph.dims) == ["B"] and all(arg.is_contiguous() for arg in args):
        check(model, resized(args, 1), built)
        check(model, resized(args, args[0].shape[0] * 2 + 1), built)


def check_on_cpu(model: torch.nn.Module, args: Tensors, folder: Path) -> Built:
    """`check_sizes` of the first schedule for the CPU of this machine. Returns what it checked."""
    built = built_on_cpu(export(model, *args), folder)
    check_sizes(model, args, built)
    return built


def check_on_gpu(
    model: torch.nn.Module, args: Tensors, folder: Path, count: int | None = None, bound: float = 1e-5
) -> None:
    """`check` of each of the first `count` schedules for an H200, or of all of them."""
    for built in built_first(export(model, *args), H200, folder, count):
        check(model, args, built, bound)


def check_read_back(graph: OpGraph, schedules: Iterable[Schedule]) -> None:
    """Each candidate gives back, from its text, the graph and the schedule that it was written from."""
    for schedule in schedules:
        candidate = emit(graph, schedule)
        assert candidate.plan.schedule == schedule.text()
        assert parse(candidate) == (graph, schedule)


def check_compiles(graph: OpGraph, schedule: Schedule, folder: Path) -> None:
    """Compiles the candidate with nvcc; skips the test where there is none."""
    if shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    compile_candidate(emit(graph, schedule), folder)


def check_names(model: torch.nn.Module, args: Tensors) -> str:
    """With names for its sizes the graph has the same first schedule, and others can be drawn. Returns its text."""
    task = canonical(export(model, *args))
    graph = named_graph(task)
    schedule = initial(graph, "cuda", H200)[0]
    assert schedule == initial(export(model, *args), "cuda", H200)[0]
    assert len(drawn(graph, "cuda", H200, random.Random(1), 3)) == 3
    return canonical_text(task, schedule)


def check_around(graph: OpGraph) -> Schedule:
    """The schedules around the first one are others of its forms. Returns the first."""
    first = initial(graph, "cuda", H200)[0]
    around = neighbours(graph, first, H200)
    assert around and all(one.forms() == first.forms() and one != first for one in around)
    return first
