"""Combines the parts of a graph into one plan: the launches in order, the buffers between them, and the kernel sources.

A part is what one kernel, library call or PyTorch call computes; each part has its own schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.ir.sizes import Size, parse_size, product, size_text, size_value
from kernel_assistant.generator.library.library import emit_library
from kernel_assistant.generator.loops.attention import ShortAttention
from kernel_assistant.generator.loops.checked import checked_nest
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.loops.recurrence import Recurrence
from kernel_assistant.generator.loops.templates import Template, as_template
from kernel_assistant.generator.plan.partition import Partition, SubGraph, named_in_order
from kernel_assistant.generator.plan.residual import emit_residual
from kernel_assistant.generator.print.cuda.templates.attention import emit_attention
from kernel_assistant.generator.print.cuda.templates.linears import emit_linears
from kernel_assistant.generator.print.cuda.templates.recurrence import emit_recurrence
from kernel_assistant.generator.print.render import KernelSource
from kernel_assistant.records import BufferSpec, Launch, OpGraph, TensorSpec

Emitted = tuple[list[KernelSource], list[Launch], tuple[BufferSpec, ...]]
EmitNest = Callable[[LoopNest, Schedule], Emitted]


@dataclass(slots=True)
class Composed:
    """The kernel sources (`units`), launches and buffers of a candidate.

    `scratch`: buffers of values between launches; `prepare`: launches that run once, not at each call, because their
    results, the buffers in `packed`, depend on parameters alone; `parts`: for each part the names of the graph's nodes
    that it computes.
    """

    units: list[KernelSource] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    scratch: tuple[BufferSpec, ...] = ()
    prepare: list[Launch] = field(default_factory=list)
    packed: tuple[BufferSpec, ...] = ()
    parts: tuple[tuple[str, ...], ...] = ()


def compose(graph: OpGraph, partition: Partition, schedule: Schedule, emit_nest: EmitNest) -> Composed:
    """Returns the sources, launches and buffers of all parts of `graph`. `emit_nest` writes the kernels of a loop nest
    for the target. Parts that are equal except for names share their kernels. Raises Unsupported if the schedule does
    not fit the parts, or if a part cannot be written.
    """
    if schedule.form != "parts" or len(schedule.parts) != len(partition.parts):
        raise Unsupported(f"schedule {schedule.form} for a graph of {len(partition.parts)} parts")
    buffers, composed = (
        _Buffers(graph, partition),
        Composed(parts=tuple(_nodes(graph, part) for part in partition.parts)),
    )
    shared: dict[tuple[object, ...], tuple[SubGraph, Emitted]] = {}
    for number, (part, chosen) in enumerate(zip(partition.parts, schedule.parts, strict=True)):
        prefix = f"part{number}_"
        key = (named_in_order(part.graph), chosen, part.once) if part.kind == "kernel" else (number,)
        if key not in shared:
            shared[key] = part, _emit_part(part, chosen, prefix, emit_nest)
            composed.units += shared[key][1][0]
        first, (_, calls, scratch) = shared[key]
        names = _as_in(first, part, buffers.names(part)) | {spec.name: f"{prefix}{spec.name}" for spec in scratch}
        launches = composed.prepare if part.once else composed.launches
        launches += [_rewired(call, names) for call in calls]
        buffers.scratch += [msgspec.structs.replace(spec, name=names[spec.name]) for spec in scratch]
    composed.scratch, composed.packed = (*buffers.between(), *buffers.scratch), tuple(buffers.packed)
    return composed


def _nodes(graph: OpGraph, part: SubGraph) -> tuple[str, ...]:
    """Returns the names of the nodes of `graph` from which the nodes of the part were made."""
    own = {node.name for node in graph.nodes}
    names = (_given(node.name, own) for node in part.graph.nodes)
    return tuple(dict.fromkeys(name for name in names if name))


def _given(name: str, own: set[str]) -> str:
    """Returns the name in `own` from which the node `name` was made: `n5` for `n5_0`; "" if there is none."""
    while name not in own and "_" in name:
        name = name.rpartition("_")[0]
    return name if name in own else ""


def _emit_part(part: SubGraph, schedule: Schedule, prefix: str, emit_nest: EmitNest) -> Emitted:
    form = schedule.form.partition("/")[0]
    fixed = form if form in ("library", "residual") else "kernel"
    if part.kind != fixed:
        raise Unsupported(f"schedule {schedule.form} for a {part.kind} part")
    if part.call is not None:
        return [], [emit_residual(part.call, part.graph, prefix)], ()
    if part.kind == "library":
        launches, scratch = emit_library(part.graph, prefix)
        return [], launches, scratch
    return emit_kernel(part.graph, schedule, prefix, emit_nest)


def emit_kernel(graph: OpGraph, schedule: Schedule, prefix: str, emit_nest: EmitNest) -> Emitted:
    """Returns the sources, launches and scratch buffers of a graph that one loop nest or one kernel template computes.
    `prefix` begins the names of its kernels. Raises Unsupported if neither computes it, or if the schedule does not
    fit.
    """
    template = as_template(graph)
    if template is not None:
        unit, launch = _emit_template(graph, template, schedule, prefix)
        return [unit], [launch], ()
    nest = checked_nest(graph, schedule.target)
    nest.prefix = prefix
    return emit_nest(nest, schedule)


def _emit_template(graph: OpGraph, template: Template, schedule: Schedule, prefix: str) -> tuple[KernelSource, Launch]:
    if isinstance(template, Recurrence):
        return emit_recurrence(graph, template, schedule, prefix)
    if isinstance(template, ShortAttention):
        return emit_attention(template, schedule, prefix)
    return emit_linears(template, schedule, prefix)


def _as_in(first: SubGraph, part: SubGraph, names: dict[str, str]) -> dict[str, str]:
    """Returns the buffers of `part` by the names that values have in `first`, another part with the same kernel.
    `names` has these buffers by the names of values in `part`.
    """
    own = {one.name: other.name for one, other in zip(part.graph.inputs, first.graph.inputs, strict=True)}
    return {own.get(name, name): buffer for name, buffer in names.items()}


def _rewired(launch: Launch, names: dict[str, str]) -> Launch:
    args = tuple((field, names.get(value, value)) for field, value in launch.args)
    return msgspec.structs.replace(launch, args=args)


class _Buffers:
    """Assigns a buffer to each value of the whole graph: an input, an output, or a slot (a scratch buffer that several
    values share). `place` maps the name of a value to the name of its buffer.

    Values of the same dtype share a slot if no part needs both. Large values get slots first, so that small ones use
    existing slots. Values that PyTorch computes, and values that are computed only once, have buffers of their own.
    """

    def __init__(self, graph: OpGraph, partition: Partition) -> None:
        self.dims, self.same = graph.dims, partition.same
        self.scratch: list[BufferSpec] = []
        self.packed: list[BufferSpec] = []
        self.place = {value.name: value.name for value in graph.inputs}
        self.place |= {name: f"out{number}" for number, name in enumerate(partition.outputs)}
        last = {
            self._root(name): number
            for number, part in enumerate(partition.parts)
            for name in (*part.inputs, *part.outputs)
        }
        values = [
            _Lifetime(name, part.graph.spec(name), number, last[name])
            for number, part in enumerate(partition.parts)
            for name in part.outputs
            if name not in self.place and part.call is None and not part.once
        ]
        self.slots: list[list[_Lifetime]] = []
        for value in sorted(values, key=lambda value: (-self._elements(value), value.first)):
            self._take_slot(value)

    def _root(self, name: str) -> str:
        return self.same.get(name, name)

    def _elements(self, value: _Lifetime) -> int:
        return size_value(value.count, self.dims)

    def _take_slot(self, value: _Lifetime) -> None:
        """Assigns to `value` the smallest slot that no other value uses during its lifetime, or a new slot. The first
        value of each slot is its largest.
        """
        free = [
            number
            for number, slot in enumerate(self.slots)
            if slot[0].spec.dtype == value.spec.dtype and not any(map(value.overlaps, slot))
        ]
        chosen = min(free, key=lambda number: self._elements(self.slots[number][0]), default=len(self.slots))
        if chosen == len(self.slots):
            self.slots.append([])
        self.slots[chosen].append(value)
        self.place[value.name] = f"between{chosen}"

    def names(self, part: SubGraph) -> dict[str, str]:
        """Returns the names of buffers by the names of a part's inputs and of its outputs (`out0`, `out1`, …); adds
        the buffers that are missing."""
        for name in part.outputs:
            if name not in self.place and part.once:
                self.place[name] = self._own(part, name, self.packed, "packed")
            elif name not in self.place:
                self.place[name] = self._own(part, name, self.scratch, "given")
        inputs = {
            value.name: self.place[self._root(name)] for value, name in zip(part.graph.inputs, part.inputs, strict=True)
        }
        return inputs | {f"out{at}": self.place[name] for at, name in enumerate(part.outputs)}

    def _own(self, part: SubGraph, name: str, among: list[BufferSpec], kind: str) -> str:
        spec = part.graph.spec(name)
        buffer = f"{kind}{sum(one.name.startswith(kind) for one in among)}"
        among.append(BufferSpec(name=buffer, dtype=spec.dtype, shape=spec.shape, strides=spec.strides))
        return buffer

    def between(self) -> list[BufferSpec]:
        buffers = []
        for number, slot in enumerate(self.slots):
            sizes = list(dict.fromkeys(size_text(value.count) for value in slot))
            size = sizes[0]
            for other in sizes[1:]:
                size = f"max({size}, {other})"
            buffers.append(BufferSpec(name=f"between{number}", dtype=slot[0].spec.dtype, shape=(size,)))
        return buffers


@dataclass(frozen=True, slots=True)
class _Lifetime:
    """The lifetime of a value: the part with index `first` computes it, and the part with index `last` is the last one
    that reads it (`first` if none does)."""

    name: str
    spec: TensorSpec
    first: int
    last: int

    @property
    def count(self) -> Size:
        return product([parse_size(size) for size in self.spec.shape])

    def overlaps(self, other: _Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last
