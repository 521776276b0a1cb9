"""For every step: the worker's exporter gives the same graph for the module, and the module computes something."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec
import pytest
import torch

from kernel_assistant.records import OpGraph
from kernel_assistant.records.canonical import canonical
from kernel_assistant.records.codec import from_builtins
from kernel_assistant.worker.graph.export import export_graph
from kernel_assistant_training.synth.memory import elements
from kernel_assistant_training.synth.module_text import module_text
from kernel_assistant_training.synth.sampler import sampled
from kernel_assistant_training.synth.steps import STEPS

#: Largest value in the graphs that are traced here, in elements.
MOST = 400_000


def _elements(graph: OpGraph) -> int:
    specs = [*(value.spec for value in graph.inputs), *(node.spec for node in graph.nodes)]
    return max(elements(spec, graph.dims) for spec in specs)


def _small(random: Random, level: int) -> tuple[OpGraph, frozenset[str]]:
    while True:
        graph, steps = sampled(random, level)
        graph = msgspec.structs.replace(graph, dims={"B": 5})
        if _elements(graph) <= MOST:
            return graph, frozenset(f"{step.family}: {step.name}" for step in steps)


def _covering(seed: int) -> Iterator[OpGraph]:
    """Tasks until every step has occurred, tasks with several new steps first."""
    random = Random(seed)
    missing = {f"{family}: {step.name}" for family, steps in STEPS.items() for step in steps}
    for wanted, tries in ((4, 200), (3, 200), (2, 1000), (1, 20_000)):
        for number in range(tries):
            graph, steps = _small(random, 1 + number % 4)
            if len(steps & missing) >= wanted:
                missing -= steps
                yield graph
            if not missing:
                return
    pytest.fail(f"never drawn: {missing}")


def _opened(graph: OpGraph) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    names: dict[str, Any] = {}
    exec(module_text(graph), names)
    torch.manual_seed(0)
    return names["Model"](*names["get_init_inputs"]()).eval().requires_grad_(False), tuple(names["get_inputs"]())


@pytest.mark.programs
@pytest.mark.slow
def test_every_step_is_written_as_the_exporter_writes_it() -> None:
    for graph in _covering(1):
        model, inputs = _opened(graph)
        traced = from_builtins(export_graph(model, inputs, {}), OpGraph)
        assert traced.text() == graph.text()
        assert traced.dims == graph.dims
        assert canonical(traced).text() == canonical(graph).text()


def test_modules_give_finite_values_that_depend_on_inputs() -> None:
    random = Random(2)
    for number in range(60):
        graph, _ = _small(random, 1 + number % 5)
        model, inputs = _opened(graph)
        results = model(*inputs)
        for result in results if isinstance(results, tuple) else (results,):
            assert bool(result.isfinite().all()), graph.text()
