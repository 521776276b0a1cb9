"""Random graphs on the CPU, compared with an interpreter of the same graph in float64."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel_assistant.generator.search.search import initial
from kernel_assistant.records import OpGraph
from kernel_assistant.targets import cpu
from tests.generator.graphs import graphs
from tests.generator.harness import Built


def interpret(graph: OpGraph, values: dict[str, torch.Tensor]) -> torch.Tensor:
    """The graph's output by PyTorch, operator by operator."""
    known: dict[str, Any] = dict(values)
    for node in graph.nodes:
        name, _, overload = node.op.partition(".")
        args = [known[arg[1:]] if isinstance(arg, str) and arg.startswith("%") else arg for arg in node.args]
        args = [[int(str(size)) for size in arg] if isinstance(arg, list) else arg for arg in args]
        known[node.name] = getattr(getattr(torch.ops.aten, name), overload or "default")(*args)
    found = known[graph.outputs[0]]
    assert isinstance(found, torch.Tensor)
    return found


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=graphs(), rows=st.sampled_from([1, 3, 10]), pick=st.integers(0, 9))
def test_random_graph_on_the_cpu(graph: OpGraph, rows: int, pick: int) -> None:
    schedules = initial(graph, "cpu", cpu.facts())
    generator = torch.Generator().manual_seed(pick)
    values = {
        value.name: torch.randn([rows if size == "B" else int(size) for size in value.spec.shape], generator=generator)
        for value in graph.inputs
    }
    with tempfile.TemporaryDirectory() as folder:
        got = Built(graph, schedules[pick % len(schedules)], Path(folder))(values)[0].double()
    want = interpret(graph, {name: value.double() for name, value in values.items()})
    eager = interpret(graph, values).double()
    allowed = 3 * (eager - want).abs() + 1e-5 * want.abs().max() + 1e-6
    bad = torch.isfinite(eager) & ~((got - want).abs() <= allowed)
    assert not bad.any(), f"{schedules[pick % len(schedules)].text()}: {(got - want).abs()[bad].max()}"
