"""Writes a Candidate (plan and kernel sources) for a graph and a schedule. `emit` is a pure function: equal arguments
give equal text."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from kernel_assistant.generator.ir.graph_text import write_graph
from kernel_assistant.generator.ir.named_graph import named_graph
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.plan.compose import Composed, compose, emit_kernel
from kernel_assistant.generator.plan.partition import cut_for
from kernel_assistant.generator.plan.plan_text import written
from kernel_assistant.generator.print.cpu.family import emit_cpu
from kernel_assistant.generator.print.cuda.family import emit_cuda
from kernel_assistant.records import BufferSpec, Candidate, OpGraph, Plan
from kernel_assistant.records.canonical import Canonical

INCLUDE = Path(__file__).resolve().parent.parent / "skills" / "include"
SOURCE = {"cpu": "kernel.cpp", "cuda": "kernel.cu"}
HEADERS = {"cpu": ("ka_cpu.h", "ka_math.h"), "cuda": ("ka_cuda.cuh", "ka_math.h")}
ORIGIN = "generator"
GRAPH_MARK = "//| "
SCHEDULE_MARK = "// schedule: "
PARTS_MARK = "// parts: "


@lru_cache(maxsize=8)
def header(name: str) -> str:
    return (INCLUDE / name).read_text(encoding="utf-8")


def emit(graph: OpGraph, schedule: Schedule) -> Candidate:
    """Returns the candidate (plan and kernel sources) that computes `graph` with the kernel family and parameters of
    `schedule`. Raises Unsupported if the generator cannot write it."""
    emit_nest = emit_cpu if schedule.target == "cpu" else emit_cuda
    if schedule.form == "parts":
        composed = compose(graph, cut_for(graph, schedule), schedule, emit_nest)
    else:
        composed = Composed(*emit_kernel(graph, schedule, "", emit_nest))
    return Candidate(
        plan=_plan(graph, schedule, composed),
        sources={SOURCE[schedule.target]: _source(graph, schedule, composed), **_headers(schedule.target)},
        origin=ORIGIN,
    )


def canonical_text(task: Canonical, schedule: Schedule) -> str:
    """Returns plan and kernel source of `task` under `schedule` as one text, in which sizes and numbers have their
    names in `task` (D0, C0). `agent/directives.py` reads the text back. Raises Unsupported if the generator cannot
    write the candidate.
    """
    return text_of(emit(named_graph(task), schedule))


def text_of(candidate: Candidate) -> str:
    """Returns plan and kernel source of a candidate that `emit` wrote as one text, without the comment lines that hold
    the graph."""
    lines = candidate.sources[SOURCE[candidate.plan.target]].split("\n")
    return written(candidate.plan, "\n".join(line for line in lines if not line.startswith(GRAPH_MARK)))


def _headers(target: str) -> dict[str, str]:
    return {name: header(name) for name in HEADERS[target]}


def _plan(graph: OpGraph, schedule: Schedule, composed: Composed) -> Plan:
    used = {value for launch in (*composed.prepare, *composed.launches) for _, value in launch.args}
    return Plan(
        target=schedule.target,
        dims=tuple(graph.dims),
        inputs=tuple(_buffer(graph, value.name, value.name) for value in graph.inputs if value.name in used),
        outputs=tuple(_buffer(graph, name, f"out{number}") for number, name in enumerate(graph.outputs)),
        scratch=composed.scratch,
        packed=composed.packed,
        prepare=tuple(composed.prepare),
        launches=tuple(composed.launches),
        residual=tuple(launch.call.call.name for launch in composed.launches if launch.call),
        schedule=schedule.text(),
    )


def _buffer(graph: OpGraph, value: str, name: str) -> BufferSpec:
    spec = graph.spec(value)
    return BufferSpec(name=name, dtype=spec.dtype, shape=spec.shape, strides=spec.strides)


def _source(graph: OpGraph, schedule: Schedule, composed: Composed) -> str:
    parts = "; ".join(" ".join(nodes) for nodes in composed.parts)
    lines = [PARTS_MARK + parts] if len(composed.parts) > 1 else []
    lines.append(SCHEDULE_MARK + schedule.text())
    lines += (GRAPH_MARK + line for line in write_graph(graph))
    lines += ['#include "plan.h"', f'#include "{HEADERS[schedule.target][0]}"', ""]
    return "\n".join(lines) + "\n" + "\n".join(unit.source for unit in composed.units)
