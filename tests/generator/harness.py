"""Compiles candidates with the real compilers and runs them with the real executor, in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch

from kernel_assistant.environment.builds.header import plan_header
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records import Candidate, OpGraph
from kernel_assistant.records.codec import from_builtins, to_builtins
from kernel_assistant.targets import cpu, cuda
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.worker.applied.binaries import driver, libraries
from kernel_assistant.worker.applied.precision import library_flags
from kernel_assistant.worker.applied.strided import laid_out
from kernel_assistant.worker.graph.export import export_graph
from kernel_assistant.worker.runner import executor
from kernel_assistant.worker.runner import plan as plans
from kernel_assistant.worker.runner.pytorch.tensors import DTYPES as TORCH
from tests.common.builds import build

Tensors = tuple[torch.Tensor, ...]

#: Schedules are chosen for devices of this kind; none is used.
DEVICES = {
    "cpu": DeviceFacts(target="cpu", name="c", arch="x86-64-avx512", threads=2, cache_bytes=32 << 20),
    "cuda": DeviceFacts(target="cuda", name="g", arch="sm_90", cores=132, cache_bytes=50 << 20),
}
H200 = DeviceFacts(
    target="cuda", name="H200", arch="sm_90", cores=132, cache_bytes=50 << 20, shared_bytes_per_block=227 << 10
)


def spread(*shape: int, scale: float = 1.0) -> torch.Tensor:
    """Normal numbers, the same ones in every run."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))) * scale


class Function(torch.nn.Module):
    """A module around a function of tensors."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


class Computed(torch.nn.Module):
    """A function of the inputs and of what the module has: layers first, then parameters."""

    def __init__(self, function: Any, *parts: torch.nn.Module | torch.Tensor) -> None:
        super().__init__()
        self.function = function
        self.layers = torch.nn.ModuleList(part for part in parts if isinstance(part, torch.nn.Module))
        self.weights = torch.nn.ParameterList(part for part in parts if isinstance(part, torch.Tensor))

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args, *self.layers, *self.weights)


#: Of modules that several tests share: by what an export reads of the inputs.
_EXPORTED: WeakKeyDictionary[torch.nn.Module, dict[tuple[Any, ...], OpGraph]] = WeakKeyDictionary()


def export(model: torch.nn.Module, *args: torch.Tensor) -> OpGraph:
    known = _EXPORTED.setdefault(model, {})
    key = tuple((arg.shape, arg.stride(), arg.dtype) for arg in args)
    if key not in known:
        known[key] = from_builtins(export_graph(model.eval(), args, {}), OpGraph)
    return known[key]


def graph_of(case: tuple[torch.nn.Module, Tensors]) -> OpGraph:
    """The graph of a module with inputs."""
    return export(case[0], *case[1])


def compile_candidate(candidate: Candidate, folder: Path) -> Path:
    """The shared object or the cubin of a candidate, built without a warning."""
    for name, text in {**candidate.sources, "plan.h": plan_header(candidate.plan)}.items():
        (folder / name).write_text(text)
    target = folder / f"{candidate.hash()}.bin"
    if candidate.plan.target == "cpu":
        # gcc guesses wrong about two loops one behind the other that have the same bound and, for some processors,
        # about what is left behind the vectors of a loop over a whole array.
        guesses = ("-Wno-maybe-uninitialized", "-Wno-aggressive-loop-optimizations")
        argv = [cpu.compiler(), *cpu.FLAGS, *cpu.LINK_FLAGS, "-Werror", *guesses, "kernel.cpp"]
    else:
        argv = [cuda.compiler(), *cuda.FLAGS, "-arch=sm_90", "-Werror=all-warnings", "kernel.cu"]
    build([*argv, "-I.", "-o", target.name], folder, target.name)
    return target


def compile_all(candidates: Sequence[Candidate], folders: Sequence[Path]) -> list[Path | AssertionError]:
    """Compiles in parallel on all cores. A failure to compile is reported by the test of that candidate only."""

    def one(candidate: Candidate, folder: Path) -> Path | AssertionError:
        try:
            return compile_candidate(candidate, folder)
        except AssertionError as error:
            return error

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(one, candidates, folders))


def binary_of(found: Path | AssertionError) -> Path:
    """The binary of a candidate. Raises the compiler's error."""
    if isinstance(found, AssertionError):
        raise found
    return found


class Built:
    """A candidate, ready to be called with tensors. `binary` is the compiled file; None compiles it here."""

    def __init__(self, graph: OpGraph, schedule: Schedule, folder: Path, binary: Path | None = None) -> None:
        self.graph = graph
        self.candidate = emit(graph, schedule)
        self.plan = to_builtins(self.candidate.plan)
        binary = binary or compile_candidate(self.candidate, folder)
        self.device = schedule.target
        self.module: executor.CpuModule | executor.CudaModule
        if schedule.target == "cpu":
            self.module = executor.CpuModule(str(binary))
        else:
            torch.zeros(1, device="cuda")
            device = torch.cuda.current_device()
            shared = libraries(device)
            shared.flags = library_flags()
            self.module = executor.CudaModule(driver(device), binary.read_bytes(), shared)

    def bind(
        self, values: dict[str, torch.Tensor], dims: dict[str, int] | None = None
    ) -> tuple[Any, list[int], list[torch.Tensor], Any]:
        """Returns (bound plan, pointers, outputs, everything that must stay alive). `dims` are those of `values` by
        default."""
        dims = sizes_in(self.graph, values) if dims is None else dims
        bound = executor.bind(self.plan, dims, self.module)
        tensors = {spec.name: self._given(values[spec.name], spec, dims) for spec in self.candidate.plan.inputs}
        for spec in (*self.candidate.plan.outputs, *self.candidate.plan.packed):
            tensors[spec.name] = self._poisoned(spec, dims)
        workspace = {executor.WORKSPACE: bound.workspace_bytes} if executor.WORKSPACE in bound.names else {}
        for name, size in {**bound.scratch_bytes, **workspace}.items():
            tensors[name] = torch.full((size + 8,), 0xAB, dtype=torch.uint8, device=self.device)
        outputs = [tensors[spec.name] for spec in self.candidate.plan.outputs]
        if self.candidate.plan.prepare:
            prepare = executor.bind(self.plan, dims, self.module, "prepare")
            prepare.run([tensors[name].data_ptr() for name in prepare.names])
            if self.device == "cuda":
                torch.cuda.synchronize()
        return bound, [tensors[name].data_ptr() for name in bound.names], outputs, tensors

    def __call__(self, values: dict[str, torch.Tensor], dims: dict[str, int] | None = None) -> list[torch.Tensor]:
        bound, pointers, outputs, alive = self.bind(values, dims)
        bound.run(pointers)
        if self.device == "cuda":
            torch.cuda.synchronize()
        del alive
        return [output.cpu() for output in outputs]

    def _given(self, value: torch.Tensor, spec: Any, dims: dict[str, int]) -> torch.Tensor:
        strides = plans.strides(to_builtins(spec), dims)
        return laid_out(value.to(self.device), strides)

    def _poisoned(self, spec: Any, dims: dict[str, int]) -> torch.Tensor:
        builtins, dtype = to_builtins(spec), TORCH[spec.dtype]
        shape, strides = plans.shape(builtins, dims), plans.strides(builtins, dims)
        out = torch.empty_strided(shape, strides, dtype=dtype, device=self.device)
        return out.fill_(float("nan")) if dtype.is_floating_point else out.fill_(1)


def sizes_in(graph: OpGraph, values: dict[str, torch.Tensor]) -> dict[str, int]:
    """The free dimensions of the graph where its inputs are these."""
    sizes = [pair for value in graph.inputs for pair in zip(value.spec.shape, values[value.name].shape, strict=True)]
    return {text: size for text, size in sizes if text in graph.dims}


def built_on_cpu(graph: OpGraph, folder: Path) -> Built:
    """The graph with its first schedule for the CPU of this machine."""
    return Built(graph, initial(graph, "cpu", cpu.facts())[0], folder)


def built_first(graph: OpGraph, device: DeviceFacts, folder: Path, count: int | None) -> Iterator[Built]:
    """The graph with each of its first `count` schedules for a device, or with all of them."""
    for number, schedule in enumerate(initial(graph, device.target, device)[:count]):
        own = folder / str(number)
        own.mkdir()
        yield Built(graph, schedule, own)


def bindings(graph: OpGraph, model: torch.nn.Module, args: Tensors) -> dict[str, torch.Tensor]:
    """Tensors by graph name: inputs in order, parameters and buffers by path."""
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {
        value.name: args[int(value.name[1:])] if value.kind == "input" else state[value.path].detach().contiguous()
        for value in graph.inputs
    }


def as_list(found: Any) -> list[torch.Tensor]:
    return list(found) if isinstance(found, tuple | list) else [found]


def resized(args: Tensors, rows: int) -> Tensors:
    """The arguments with another size of the first dimension, for all tensors that have the size of the first tensor
    there.
    """
    size = args[0].shape[0]
    return tuple(arg[torch.arange(rows) % size] if arg.dim() and arg.shape[0] == size else arg for arg in args)
