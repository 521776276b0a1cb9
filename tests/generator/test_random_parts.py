"""Random graphs of one part and of several on the CPU, compared with an interpreter of the same graph in float64."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.search.search import initial, neighbours
from kernel_assistant.records import OpGraph
from kernel_assistant.targets import cpu
from kernel_assistant.worker.runner.plan import evaluate
from tests.generator.checks import check_read_back
from tests.generator.composite_graphs import composite_graphs
from tests.generator.graphs import graphs
from tests.generator.harness import DEVICES, TORCH, Built


def interpret(graph: OpGraph, values: dict[str, torch.Tensor], dims: dict[str, int]) -> list[torch.Tensor]:
    """The graph's outputs by PyTorch, operator by operator."""
    known: dict[str, Any] = dict(values)
    for node in graph.nodes:
        name, _, overload = node.op.partition(".")
        args = [known[arg[1:]] if isinstance(arg, str) and arg.startswith("%") else arg for arg in node.args]
        args = [[evaluate(str(size), dims) for size in arg] if isinstance(arg, list) else arg for arg in args]
        known[node.name] = getattr(getattr(torch.ops.aten, name), overload or "default")(*args)
    return [known[name] for name in graph.outputs]


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=graphs(), rows=st.sampled_from([1, 3, 10]), pick=st.integers(0, 9))
def test_random_graph_on_the_cpu(graph: OpGraph, rows: int, pick: int) -> None:
    schedules = initial(graph, "cpu", cpu.facts())
    schedule = schedules[pick % len(schedules)]
    generator = torch.Generator().manual_seed(pick)
    values = {
        value.name: torch.randn([rows if size == "B" else int(size) for size in value.spec.shape], generator=generator)
        for value in graph.inputs
    }
    with tempfile.TemporaryDirectory() as folder:
        got = Built(graph, schedule, Path(folder))(values)[0].double()
    (want,) = interpret(graph, {name: value.double() for name, value in values.items()}, {"B": rows})
    eager = interpret(graph, values, {"B": rows})[0].double()
    allowed = 3 * (eager - want).abs() + 1e-5 * want.abs().max() + 1e-6
    bad = torch.isfinite(eager) & ~((got - want).abs() <= allowed)
    assert not bad.any(), f"{schedule.text()}: {(got - want).abs()[bad].max()}"


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=composite_graphs(), rows=st.sampled_from([2, 3, 10]), pick=st.integers(0, 9))
def test_random_parts_on_the_cpu(graph: OpGraph, rows: int, pick: int) -> None:
    schedules = initial(graph, "cpu", cpu.facts())
    schedule = schedules[pick % len(schedules)]
    spec = graph.inputs[0].spec
    generator = torch.Generator().manual_seed(pick)
    shape = [rows if size == "B" else int(size) for size in spec.shape]
    x = torch.randn(shape, generator=generator).to(TORCH[spec.dtype])
    with tempfile.TemporaryDirectory() as folder:
        got = Built(graph, schedule, Path(folder))({"x0": x})
    want = interpret(graph, {"x0": x.double()}, {"B": rows})
    eager = interpret(graph, {"x0": x}, {"B": rows})
    half = spec.dtype in ("bf16", "f16")
    for mine, exact, theirs in zip(got, want, eager, strict=True):
        assert mine.shape == theirs.shape
        if mine.dtype == torch.int64:
            # In half precision, and between nearly equal values, another position may have the largest.
            assert half or (mine == exact).double().mean() > 0.5
            continue
        # A norm of equal values is zero but for rounding: that is compared with nothing.
        assume(float(exact.abs().max()) > 1e-3)
        allowed = 4 * (theirs.double() - exact).abs() + (3e-2 if half else 1e-5) * exact.abs().max() + 1e-6
        bad = torch.isfinite(theirs) & ~((mine.double() - exact).abs() <= allowed)
        assert not bad.any(), f"{schedule.text()}: {(mine.double() - exact).abs()[bad].max()}"


@settings(max_examples=60, deadline=None)
@given(graph=composite_graphs(), target=st.sampled_from(["cpu", "cuda"]), pick=st.integers(0, 99))
def test_random_parts_come_back(graph: OpGraph, target: str, pick: int) -> None:
    check_read_back(graph, [_picked(graph, target, pick)])


@settings(max_examples=60, deadline=None)
@given(graph=graphs(), target=st.sampled_from(["cpu", "cuda"]), pick=st.integers(0, 99))
def test_random_graphs_come_back(graph: OpGraph, target: str, pick: int) -> None:
    check_read_back(graph, [_picked(graph, target, pick)])


def _picked(graph: OpGraph, target: str, pick: int) -> Schedule:
    """One of the schedules of a search, or of those around it."""
    schedules = initial(graph, target, DEVICES[target])
    schedule = schedules[pick % len(schedules)]
    around = [schedule, *neighbours(graph, schedule, DEVICES[target])]
    return around[pick % len(around)]
