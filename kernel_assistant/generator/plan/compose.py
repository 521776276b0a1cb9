"""Combines parts, with a schedule for each, into launches in order, buffers between them, and sources."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.ir.sizes import parse_size, product, size_text
from kernel_assistant.generator.library.library import emit_library
from kernel_assistant.generator.loops.checked import checked_nest
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.plan.partition import Partition, SubGraph
from kernel_assistant.generator.plan.residual import emit_residual
from kernel_assistant.generator.print.render import KernelSource
from kernel_assistant.records import BufferSpec, Launch, OpGraph

Emitted = tuple[list[KernelSource], list[Launch], tuple[BufferSpec, ...]]
EmitNest = Callable[[LoopNest, Schedule], Emitted]


@dataclass(slots=True)
class Composed:
    """`prepare` are the launches whose results, the buffers in `packed`, depend on parameters alone."""

    units: list[KernelSource] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    scratch: tuple[BufferSpec, ...] = ()
    prepare: list[Launch] = field(default_factory=list)
    packed: tuple[BufferSpec, ...] = ()


def compose(graph: OpGraph, found: Partition, schedule: Schedule, emit_nest: EmitNest) -> Composed:
    """Units, launches and buffers of all parts. Raises Unsupported."""
    if schedule.form != "parts" or len(schedule.parts) != len(found.parts):
        raise Unsupported(f"schedule {schedule.form} for a graph of {len(found.parts)} parts")
    buffers, composed = _Buffers(graph, found), Composed()
    for number, (part, chosen) in enumerate(zip(found.parts, schedule.parts, strict=True)):
        prefix = f"part{number}_"
        written, calls, scratch = _emit_part(part, chosen, prefix, emit_nest)
        names = buffers.names(number, part) | {spec.name: f"{prefix}{spec.name}" for spec in scratch}
        composed.units += written
        launches = composed.prepare if part.once else composed.launches
        launches += [_rewired(call, names) for call in calls]
        buffers.scratch += [msgspec.structs.replace(spec, name=names[spec.name]) for spec in scratch]
    composed.scratch, composed.packed = (*buffers.between(), *buffers.scratch), tuple(buffers.packed)
    return composed


def _emit_part(part: SubGraph, schedule: Schedule, prefix: str, emit_nest: EmitNest) -> Emitted:
    fixed = schedule.form if schedule.form in ("library", "residual") else "kernel"
    if part.kind != fixed:
        raise Unsupported(f"schedule {schedule.form} for a {part.kind} part")
    if part.call is not None:
        return [], [emit_residual(part.call, part.graph, prefix)], ()
    if part.kind == "library":
        launches, scratch = emit_library(part.graph, prefix)
        return [], launches, scratch
    nest = checked_nest(part.graph, schedule.target)
    nest.prefix = prefix
    return emit_nest(nest, schedule)


def _rewired(launch: Launch, names: dict[str, str]) -> Launch:
    args = tuple((field, names.get(value, value)) for field, value in launch.args)
    return msgspec.structs.replace(launch, args=args)


class _Buffers:
    """Where each value of the whole graph is: an input, an output, or a slot of scratch memory.

    A slot is reused for a value of the same type after the last part that reads its previous value. Values that PyTorch
    computes have buffers of their own, at the addresses that PyTorch chose, and so have values that are computed once.
    """

    def __init__(self, graph: OpGraph, found: Partition) -> None:
        self.same = found.same
        self.scratch: list[BufferSpec] = []
        self.packed: list[BufferSpec] = []
        self.place = {value.name: value.name for value in graph.inputs}
        self.place |= {name: f"out{number}" for number, name in enumerate(found.outputs)}
        self.last = {
            self._root(name): number
            for number, part in enumerate(found.parts)
            for name in (*part.inputs, *part.outputs)
        }
        self.slots: list[tuple[str, list[str]]] = []
        self.busy: dict[int, str] = {}

    def _root(self, name: str) -> str:
        return self.same.get(name, name)

    def names(self, number: int, part: SubGraph) -> dict[str, str]:
        """Maps a part's own names of its inputs and outputs to buffers."""
        self.busy = {slot: name for slot, name in self.busy.items() if self.last[name] >= number}
        for name in part.outputs:
            if name not in self.place:
                self.place[name] = self._new(part, name)
        found = {
            value.name: self.place[self._root(name)] for value, name in zip(part.graph.inputs, part.inputs, strict=True)
        }
        return found | {f"out{at}": self.place[name] for at, name in enumerate(part.outputs)}

    def _new(self, part: SubGraph, name: str) -> str:
        """The buffer of a value that is neither given nor a result of the graph."""
        if part.once:
            return self._own(part, name, self.packed, "packed")
        return self._slot(part, name) if part.call is None else self._own(part, name, self.scratch, "given")

    def _own(self, part: SubGraph, name: str, among: list[BufferSpec], kind: str) -> str:
        spec = part.graph.spec(name)
        buffer = f"{kind}{sum(one.name.startswith(kind) for one in among)}"
        among.append(BufferSpec(name=buffer, dtype=spec.dtype, shape=spec.shape, strides=spec.strides))
        return buffer

    def _slot(self, part: SubGraph, name: str) -> str:
        spec = part.graph.spec(name)
        size = size_text(product([parse_size(size) for size in spec.shape]))
        free = [at for at, (dtype, _) in enumerate(self.slots) if dtype == spec.dtype and at not in self.busy]
        # A slot of the same size, if there is one.
        chosen = next((at for at in free if size in self.slots[at][1]), free[0] if free else len(self.slots))
        if chosen == len(self.slots):
            self.slots.append((spec.dtype, []))
        if size not in self.slots[chosen][1]:
            self.slots[chosen][1].append(size)
        self.busy[chosen] = name
        return f"between{chosen}"

    def between(self) -> list[BufferSpec]:
        found = []
        for number, (dtype, sizes) in enumerate(self.slots):
            size = sizes[0]
            for other in sizes[1:]:
                size = f"max({size}, {other})"
            found.append(BufferSpec(name=f"between{number}", dtype=dtype, shape=(size,)))
        return found
