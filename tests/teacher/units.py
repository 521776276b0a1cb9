"""Answers of many tasks as one translation unit: it is compiled once, and run by the product's executor or by the
emulator.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import torch

from kernel_assistant.agent.directives import candidate_from
from kernel_assistant.environment.builds.header import plan_header
from kernel_assistant.records import OpGraph, Plan
from kernel_assistant.records.canonical import Canonical, canonical
from kernel_assistant.records.codec import from_builtins, to_builtins
from kernel_assistant.worker.graph.export import export_graph
from kernel_assistant.worker.runner import plan as plans
from kernel_assistant.worker.runner.pytorch.tensors import DTYPES as TORCH
from kernel_assistant_training.teacher.text.answer import Answer
from tests.generator.harness import Function
from tests.skills.program import Program

Tensors = tuple[torch.Tensor, ...]
UNITS = {"cpu": "kernel.cpp", "cuda": "kernel.cu"}
#: Largest error as a part of the largest value: some roundings of float32, one of a half type.
BOUND = {torch.float32: 4e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}


@dataclass(frozen=True)
class Task:
    """A module, its inputs for a size of the free dimension, and its graph if that was made first."""

    name: str
    model: torch.nn.Module
    inputs: Callable[[int], Tensors]
    drawn: OpGraph | None = None

    @cached_property
    def graph(self) -> OpGraph:
        """The graph. If it is not given, the worker makes it when it is first needed, because every process of a run
        collects all tests.
        """
        return self.drawn or from_builtins(export_graph(self.model, self.inputs(6), {}), OpGraph)

    @property
    def canonical(self) -> Canonical:
        return canonical(self.graph)


def task(name: str, model: Any, inputs: Callable[[int], Tensors], dtype: torch.dtype = torch.float32) -> Task:
    """A task whose `inputs(B)` are made in float32 and passed in `dtype`."""
    module = (model if isinstance(model, torch.nn.Module) else Function(model)).eval().to(dtype)

    def given(size: int) -> Tensors:
        return tuple(one.to(dtype) if one.is_floating_point() else one for one in inputs(size))

    return Task(name, module, given)


@dataclass(frozen=True)
class Written:
    """An answer as a program whose names differ from those of all other programs."""

    task: Task
    program: Program

    def dims(self, inputs: Tensors) -> dict[str, int]:
        found = {}
        for value in self.task.graph.inputs:
            if value.kind == "input":
                sizes = zip(value.spec.shape, inputs[int(value.name[1:])].shape, strict=True)
                found.update({text: size for text, size in sizes if text in self.task.graph.dims})
        return found

    def errors(
        self, module: Any, bind: Callable[..., Any], size: int, device: str = "cpu", *, exact: bool = True
    ) -> list[float]:
        """The error of each result against the module in float64, or in its own type without `exact`: the largest error
        divided by the largest value and by the error that the dtype allows; NaN if an element was not written.
        """
        torch.manual_seed(size)
        inputs = self.task.inputs(size)
        plan, dims = to_builtins(self.program.plan), self.dims(inputs)
        held = {**dict(self.task.model.named_parameters()), **dict(self.task.model.named_buffers())}
        tensors = {f"x{number}": one for number, one in enumerate(inputs)}
        tensors |= {value.name: held[value.path] for value in self.task.graph.inputs if value.path}
        tensors = {name: one.detach().clone().to(device) for name, one in tensors.items()}
        for spec in (*plan["outputs"], *plan["scratch"]):
            shape, strides = plans.shape(spec, dims), plans.strides(spec, dims)
            made = torch.empty_strided(shape, strides, dtype=TORCH[spec["dtype"]], device=device)
            tensors[spec["name"]] = made.fill_(float("nan") if made.is_floating_point() else 1)
        bound = bind(plan, dims, module)
        bound.freeze([tensors[name].data_ptr() for name in bound.names])(0)
        model = copy.deepcopy(self.task.model).double() if exact else self.task.model
        with torch.no_grad():
            wanted = model(*(one.double() if exact and one.is_floating_point() else one for one in inputs))
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        return [_error(tensors[spec["name"]].cpu(), want) for spec, want in zip(plan["outputs"], wanted, strict=True)]


def _error(got: torch.Tensor, want: torch.Tensor) -> float:
    if got.shape != want.shape:
        return float("inf")
    if not got.is_floating_point():
        return 0.0 if torch.equal(got, want.to(got.dtype)) else float("inf")
    largest = max(float(want.abs().max()), 1e-6)
    return float((got.double() - want.double()).abs().max()) / largest / BOUND[got.dtype]


def written(
    tasks: Iterable[Task], target: str, answers: Callable[[Task], Sequence[Answer]], first: int = 0
) -> list[Written]:
    """Every answer for every task, with names that are numbered from `first` on."""
    pairs = [(one, answer) for one in tasks for answer in answers(one)]
    return [Written(one, _program(one, target, answer, f"c{first + at}_")) for at, (one, answer) in enumerate(pairs)]


def _program(one: Task, target: str, answer: Answer, prefix: str) -> Program:
    candidate = candidate_from({UNITS[target]: answer.source}, one.graph, target, one.canonical)
    source = candidate.sources[UNITS[target]]
    headers = re.findall(r'#include "ka/(\w+)\.cuh"', source)
    lines = [line for line in source.splitlines() if not line.startswith(("#include", "#line"))]
    code = "\n".join(f'#include "ka/{name}.cuh"' for name in headers[1:])
    code += f"\nnamespace {prefix}names {{\n" + _prefixed("\n".join(lines), prefix) + "\n}\n"
    return Program(
        header=headers[0] if headers else "",
        source=code,
        plan=_renamed(candidate.plan, prefix),
        exact=lambda *inputs: inputs[0],
        sizes=(),
        large={},
        bound=0.0,
    )


def _prefixed(text: str, prefix: str) -> str:
    return re.sub(r"\b(k\d+)(_args)?\b", lambda found: prefix + found[0], text)


def _renamed(plan: Plan, prefix: str) -> Plan:
    launches = tuple(msgspec.structs.replace(one, symbol=prefix + one.symbol) for one in plan.launches)
    return msgspec.structs.replace(plan, launches=launches)


def cpu_unit(every: Iterable[Written], includes: Sequence[str]) -> str:
    """The text of one translation unit for the CPU."""
    lines = ["#include <stdint.h>", '#include "ka_cpu.h"', *(f'#include "{name}"' for name in includes)]
    for one in every:
        lines += [line for line in plan_header(one.program.plan).splitlines() if line.startswith("typedef")]
        lines.append(one.program.source)
    return "\n".join(lines)
