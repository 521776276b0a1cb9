"""Runs the parts of a graph that are cut for CUDA on the CPU: kernels as the generator writes them for the CPU, library
launches and residual calls by PyTorch, recurrences and attention, which the CPU does not have, with the emulator. So
the parts are tested together, with the layouts of values between them; what a kernel for CUDA computes has tests of its
own.
"""

from __future__ import annotations

from pathlib import Path

import torch

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.loops.templates import as_template
from kernel_assistant.generator.plan.partition import DEFAULT_USE, LibraryUse, SubGraph, cut
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records import OpGraph
from kernel_assistant.records.codec import to_builtins
from kernel_assistant.targets import cpu
from kernel_assistant.worker.runner import plan as plans
from kernel_assistant.worker.runner.pytorch.aten import Operator
from tests.generator.cuda_on_host import OnHost
from tests.generator.harness import H200, Built, sizes_in
from tests.generator.library_reference import run_plan


class ByParts:
    """A graph cut for CUDA, called with tensors like `harness.Built`. `kinds` are those of its parts, in order."""

    def __init__(
        self, graph: OpGraph, folder: Path, template: Schedule | None = None, use: LibraryUse = DEFAULT_USE
    ) -> None:
        self.graph, self._template = graph, template
        self.found = cut(graph, "cuda", use=use)
        self.kinds = [part.kind for part in self.found.parts]
        self._folder = folder
        self._kernels: dict[int, Built | OnHost] = {}

    def __call__(self, values: dict[str, torch.Tensor], dims: dict[str, int] | None = None) -> list[torch.Tensor]:
        dims = dims or sizes_in(self.graph, values)
        known = dict(values)
        for number, part in enumerate(self.found.parts):
            given = {
                value.name: _laid(known[self.found.same.get(name, name)], value.spec, dims)
                for value, name in zip(part.graph.inputs, part.inputs, strict=True)
            }
            known |= zip(part.outputs, self._run(number, part, given, dims), strict=True)
        return [
            _laid(known[name], self.graph.spec(output), dims)
            for name, output in zip(self.found.outputs, self.graph.outputs, strict=True)
        ]

    def _run(
        self, number: int, part: SubGraph, given: dict[str, torch.Tensor], dims: dict[str, int]
    ) -> list[torch.Tensor]:
        if part.call is not None:
            for node in part.graph.nodes:
                Operator(to_builtins(node), dims, "cpu")(given)
            return [given[name] for name in part.graph.outputs]
        if part.kind == "library":
            plan = to_builtins(emit(part.graph, initial(part.graph, "cuda", H200)[0]).plan)
            return run_plan(plan, dims, given)
        if number not in self._kernels:
            folder = self._folder / f"part{number}"
            folder.mkdir()
            self._kernels[number] = self._built(part.graph, folder)
        kernel = self._kernels[number]
        return kernel(given, dims)

    def _built(self, graph: OpGraph, folder: Path) -> Built | OnHost:
        if as_template(graph) is not None:
            return OnHost(graph, self._template or initial(graph, "cuda", H200)[0], folder)
        return Built(graph, initial(graph, "cpu", cpu.facts())[0], folder)


def _laid(value: torch.Tensor, spec: object, dims: dict[str, int]) -> torch.Tensor:
    """The same elements of dense memory in the shape that a reader gives them."""
    builtins = to_builtins(spec)
    shape, strides = plans.shape(builtins, dims), plans.strides(builtins, dims)
    if value.shape == shape:
        if value.stride() == strides:
            return value
        return torch.empty_strided(shape, strides, dtype=value.dtype).copy_(value)
    return value.reshape(shape)
