"""Tasks of the sampler, with the module that it writes for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

import msgspec
import torch

from kernel_assistant.records import OpGraph
from kernel_assistant.records.canonical import canonical
from kernel_assistant_training.synth.memory import elements
from kernel_assistant_training.synth.module_text import module_text
from kernel_assistant_training.synth.sampler import sampled
from kernel_assistant_training.synth.split import split_of
from tests.teacher.units import BOUND, Task, Tensors

#: Largest value of a task that is run, in elements.
MOST = 300_000
#: How much less exact than PyTorch in the same types a result may be, and half a bound where PyTorch is exact.
LESS_EXACT, LEAST = 4.0, 0.5


def drawn(count: int, seed: int, families: Iterable[str], size: int = 5) -> Iterator[tuple[Task, frozenset[str]]]:
    """Small training tasks that have a step of one of the families, with the names of these steps."""
    random, wanted, found = Random(seed), set(families), 0
    while found < count:
        graph, steps = sampled(random, 1 + random.randrange(4), 0.3)
        names = frozenset(f"{step.family}: {step.name}" for step in steps if step.family in wanted)
        graph = msgspec.structs.replace(graph, dims={"B": size})
        specs = [*(value.spec for value in graph.inputs), *(node.spec for node in graph.nodes)]
        if not names or max(elements(spec, graph.dims) for spec in specs) > MOST:
            continue
        if split_of(graph, canonical(graph).key()) != "train":
            continue
        found += 1
        yield Task(f"{found} {', '.join(sorted(names))}", _module(graph), _inputs(graph), graph), names


def _module(graph: OpGraph) -> torch.nn.Module:
    torch.manual_seed(0)
    found: torch.nn.Module = _names(graph)["Model"]().eval().requires_grad_(False)
    return found


def _inputs(graph: OpGraph) -> Any:
    def given(size: int) -> Tensors:
        return tuple(_names(msgspec.structs.replace(graph, dims={"B": size}))["get_inputs"]())

    return given


def _names(graph: OpGraph, *, double: bool = False) -> dict[str, Any]:
    """The names that the module's text defines; with `double` every cast goes to float64."""
    text = module_text(graph)
    for name in ("bfloat16", "float16", "float32") if double else ():
        text = text.replace(f"torch.{name}", "torch.float64")
    found: dict[str, Any] = {}
    exec(text, found)
    return found


def allowed(task: Task, size: int) -> list[float]:
    """For each result, the allowed error against the module in float64, in the unit of `Written.errors`: a multiple of
    the error of PyTorch in the task's own types.
    """
    torch.manual_seed(size)
    inputs = task.inputs(size)
    own, exact = task.model(*inputs), _exact(task.graph, task.model)(*(_double(one) for one in inputs))
    found = []
    for got, want in zip(_several(own), _several(exact), strict=True):
        if not got.is_floating_point():
            found.append(0.0)
            continue
        largest = max(float(want.abs().max()), 1e-6)
        error = float((got.double() - want.double()).abs().max()) / largest / BOUND[got.dtype]
        found.append(max(1.0, LESS_EXACT * error + LEAST))
    return found


def _exact(graph: OpGraph, model: torch.nn.Module) -> torch.nn.Module:
    made: torch.nn.Module = _names(graph, double=True)["Model"]().eval().requires_grad_(False)
    made.load_state_dict(model.state_dict())
    return made.double()


def _double(one: torch.Tensor) -> torch.Tensor:
    return one.double() if one.is_floating_point() else one


def _several(found: Any) -> tuple[torch.Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)
