"""Compiles candidates with the real compiler and runs them with the real executor, in this process."""

from __future__ import annotations

import copy
import subprocess
from pathlib import Path
from typing import Any

import torch

from kernel_assistant.environment.header import plan_header
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.schedule import Schedule
from kernel_assistant.records import Candidate, OpGraph
from kernel_assistant.records.codec import from_builtins, to_builtins
from kernel_assistant.targets import cpu
from kernel_assistant.worker.export import export_graph
from kernel_assistant.worker.runner import executor
from kernel_assistant.worker.runner import plan as plans

TORCH = {
    "f64": torch.float64,
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "b1": torch.bool,
}


class Function(torch.nn.Module):
    """A module around a function of tensors."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


def export(model: torch.nn.Module, *args: torch.Tensor) -> OpGraph:
    return from_builtins(export_graph(model.eval(), args, {}), OpGraph)


def build(candidate: Candidate, folder: Path) -> Path:
    """The shared object of a CPU candidate."""
    for name, text in {**candidate.sources, "plan.h": plan_header(candidate.plan)}.items():
        (folder / name).write_text(text)
    target = folder / f"{candidate.hash()}.so"
    argv = ["g++", *cpu.FLAGS, *cpu.LINK_FLAGS, "-Werror", "-I.", "kernel.cpp", "-o", str(target)]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + candidate.sources["kernel.cpp"]
    return target


class Built:
    """A CPU candidate, ready to be called with tensors."""

    def __init__(self, graph: OpGraph, schedule: Schedule, folder: Path) -> None:
        self.graph = graph
        self.candidate = emit(graph, schedule)
        self.plan = to_builtins(self.candidate.plan)
        self.module = executor.CpuModule(str(build(self.candidate, folder)))

    def bind(self, values: dict[str, torch.Tensor]) -> tuple[Any, list[int], list[torch.Tensor], Any]:
        dims = self._dims(values)
        bound = executor.bind(self.plan, dims, self.module)
        tensors: dict[str, torch.Tensor] = dict(values)
        for spec in self.candidate.plan.inputs:
            strides = plans.strides(to_builtins(spec), dims)
            if values[spec.name].stride() != strides:
                tensors[spec.name] = torch.empty_strided(values[spec.name].shape, strides, dtype=TORCH[spec.dtype])
                tensors[spec.name].copy_(values[spec.name])
        outputs = []
        for spec, shape in zip(self.candidate.plan.outputs, bound.output_shapes, strict=True):
            strides = plans.strides(to_builtins(spec), dims)
            tensors[spec.name] = _poisoned(shape, strides, TORCH[spec.dtype])
            outputs.append(tensors[spec.name])
        for name, size in bound.scratch_bytes.items():
            tensors[name] = torch.full((size + 8,), 0xAB, dtype=torch.uint8)
        return bound, [tensors[name].data_ptr() for name in bound.names], outputs, tensors

    def __call__(self, values: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        bound, pointers, outputs, tensors = self.bind(values)
        bound.run(pointers)
        del tensors
        return outputs

    def _dims(self, values: dict[str, torch.Tensor]) -> dict[str, int]:
        sizes = [
            pair for value in self.graph.inputs for pair in zip(value.spec.shape, values[value.name].shape, strict=True)
        ]
        return {text: size for text, size in sizes if text in self.graph.dims}


def _poisoned(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    out = torch.empty_strided(shape, strides, dtype=dtype)
    return out.fill_(float("nan")) if dtype.is_floating_point else out.fill_(1)


def bindings(graph: OpGraph, model: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
    """Tensors by graph name: inputs in order, parameters and buffers by path."""
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {
        value.name: args[int(value.name[1:])] if value.kind == "input" else state[value.path].detach().contiguous()
        for value in graph.inputs
    }


def as_list(found: Any) -> list[torch.Tensor]:
    return list(found) if isinstance(found, tuple | list) else [found]


def check(model: torch.nn.Module, args: tuple[torch.Tensor, ...], built: Built, bound: float = 1e-5) -> None:
    """Compare with a float64 run of the module; errors count against the largest value, plus what PyTorch makes."""
    with torch.no_grad():
        eager = as_list(model(*args))
        wide = copy.deepcopy(model).double()
        want = as_list(wide(*(arg.double() if arg.is_floating_point() else arg for arg in args)))
    got = built(bindings(built.graph, model, args))
    assert len(got) == len(want)
    for mine, theirs, exact in zip(got, eager, want, strict=True):
        assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
        if not mine.dtype.is_floating_point:
            assert torch.equal(mine, theirs)
            continue
        half = mine.dtype in (torch.bfloat16, torch.float16)
        assert torch.equal(torch.isnan(mine), torch.isnan(theirs))
        scale = torch.where(torch.isfinite(exact), exact.abs(), 0).max() if exact.numel() else 0.0
        allowed = 2 * (theirs.double() - exact).abs() + (1e-2 if half else bound) * scale
        error = (mine.double() - exact).abs()
        bad = (error > allowed) & torch.isfinite(exact)
        assert not bad.any(), f"{int(bad.sum())} of {bad.numel()} wrong, worst {error[bad].max():.3g}"
