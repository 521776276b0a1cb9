"""Rows that are read again while they are in the L2 cache: in one grid, passes over neighbouring rows take turns.

Block by block, pass 0 of row t, pass 1 of row t - `ahead`, pass 2 of row t - 2·`ahead`, … . Blocks begin in the order
of their numbers, so that a pass seldom waits for the one before. Nothing rests on that: a block that has waited too
long computes the partial results of the whole row itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.generator.cuda.common import Reducing, pointers, store_scope, write_scope
from kernel_assistant.generator.cuda.group import index_type, make_layout
from kernel_assistant.generator.cuda.partial import join_parts, leave, left_buffers, read_whole
from kernel_assistant.generator.cuda.rows import shift_text
from kernel_assistant.generator.cuda.shares import ALONE_SITE, bounds, zero
from kernel_assistant.generator.cuda.sweeps import Sweep
from kernel_assistant.generator.errors import Unsupported
from kernel_assistant.generator.expr import Expr
from kernel_assistant.generator.nest import Nest
from kernel_assistant.generator.passes import Pass, Passes, nothing, plan_passes
from kernel_assistant.generator.render import Body, Unit
from kernel_assistant.generator.schedule import Schedule
from kernel_assistant.generator.sizes import size_text
from kernel_assistant.records import BufferSpec, Launch


def emit_relay(nest: Nest, schedule: Schedule) -> tuple[list[Unit], list[Launch], tuple[BufferSpec, ...]]:
    relay = _Relay(nest, schedule, plan_passes(nest, nothing, joint=True))
    unit, launch = relay.write()
    zeroing, first = zero(nest, [(f"arrived{number}", f"joined{number}") for number in range(len(relay.done))])
    return [zeroing, unit], [first, launch], tuple(relay.scratch)


@dataclass(frozen=True, slots=True)
class _Done:
    """A pass that reduces, and what is computed once for the row before it."""

    part: Pass
    reducing: Reducing
    scope: list[Expr]


class _Relay:
    def __init__(self, nest: Nest, schedule: Schedule, plan: Passes) -> None:
        self.nest, self.plan = nest, plan
        self.parts, self.ahead, self.hint = schedule["parts"], schedule["ahead"], schedule["hint"]
        self.block, self.vec, unroll = schedule["block"], schedule["vec"], schedule["unroll"]
        size = nest.size(nest.reduced)
        if not isinstance(size, int) or len(plan.passes) < 2:
            raise Unsupported("a relay takes rows of fixed size that are read again")
        self.size, self.rows = size, nest.size(nest.outer)
        layout = make_layout(nest, nest.reduced, nest.outer, self.vec, 0, shiftable=True)
        step = self.block * self.vec
        self.share = -(-size // (self.parts * step)) * step
        layout.index, layout.limit = index_type(self.share * self.parts), "end"
        layout.full = layout.shift is None and self.share * self.parts == size and self.share % (step * unroll) == 0
        self.layout = layout
        self.sweep = Sweep(layout, self.block, step, unroll)
        self.alone = Sweep(layout, self.block, step, 1)
        self.scratch: list[BufferSpec] = []
        self.scope: list[Expr] = []
        self.done: list[_Done] = []

    def write(self) -> tuple[Unit, Launch]:
        """The kernel: a block is one part of one pass over one row."""
        unit, passes = Unit(self.nest.prefix + "rows_relay", "cuda"), len(self.plan.passes)
        unit.add(f"const int pass = blockIdx.x % {passes}, part = blockIdx.x / {passes} % {self.parts};")
        unit.add(f"const int64_t o = (int64_t)(blockIdx.x / {passes * self.parts}) - pass * {self.ahead};")
        unit.add(f"if (o < 0 || o >= {unit.size(self.rows)}) return;")
        pointers(unit, self.nest, self.nest.outer, "o")
        if self.layout.shift is not None:
            unit.add(f"const int shift = 0{shift_text(unit, self.nest, self.layout)};")
        bounds(unit, self.layout, self.parts, self.share, self.size)
        for number, part in enumerate(self.plan.passes):
            unit.open(f"if (pass == {number})")
            self._pass(unit, part)
            unit.close()
        unit.finish(bounds=f"__launch_bounds__({self.block}) ")
        rounds = f"({size_text(self.rows)} + {(passes - 1) * self.ahead})"
        return unit, unit.launch((f"{rounds} * {passes * self.parts}", "1", "1"), self.block)

    def _pass(self, unit: Unit, part: Pass) -> None:
        body, reducing = Body(unit, self.nest), Reducing(self.nest, part, joint=True)
        for number, done in enumerate(self.done):
            self._await(body, number, done)
        self.scope += part.scope
        write_scope(body, self.scope)
        # What is read for the last time need not stay in the cache, nor what is written.
        self.layout.hint = 0 if part.reduces else self.hint
        reducing.declare(unit)
        self.sweep.write(body, part, reducing, first=True)
        if part.reduces:
            reducing.finish(body, self.block, 1)
            self._leave(body, part, reducing)

    def _leave(self, body: Body, part: Pass, reducing: Reducing) -> None:
        """Leave the partial result; the block that comes last joins all."""
        unit, number = body.unit, len(self.done)
        unit.open("if (threadIdx.x == 0)")
        leave(unit, reducing, "part", f"o * {self.parts} + part", "all")
        unit.close()
        unit.open(f"if (ka_relay_last({unit.buffer(f'arrived{number}')} + o, {self.parts}))")
        self._join(body, reducing, number)
        self.done.append(_Done(part, reducing, list(self.scope)))
        if len(self.done) == sum(bool(other.reduces) for other in self.plan.passes):
            scope = [expr for other in self.plan.passes for expr in other.scope]
            write_scope(body, [*scope, *self.plan.scope])
            store_scope(body, self.plan.stores, "threadIdx.x == 0")
        unit.close()
        rows = size_text(self.rows)
        self.scratch += left_buffers(reducing, "part", (rows, str(self.parts)))
        self.scratch += left_buffers(reducing, "whole", (rows,))
        counters = (f"arrived{number}", f"joined{number}")
        self.scratch += [BufferSpec(name=name, dtype="i32", shape=(rows,)) for name in counters]

    def _join(self, body: Body, reducing: Reducing, number: int) -> None:
        unit = body.unit
        join_parts(unit, body, reducing, self.parts, self.block, "ka_fresh(&{})")
        unit.open("if (threadIdx.x == 0)")
        leave(unit, reducing, "whole", "o", "past")
        unit.add(f"ka_team_arrive({unit.buffer(f'joined{number}')} + o);")
        unit.close()

    def _await(self, body: Body, number: int, done: _Done) -> None:
        """Have what an earlier pass over this row has found."""
        unit, reducing = body.unit, done.reducing
        unit.open(f"if (!ka_team_wait({unit.buffer(f'joined{number}')} + o, 1))")
        unit.open(f"for (int part = 0; part < {self.parts}; ++part)")
        bounds(unit, self.layout, self.parts, self.share, self.size)
        inner = body.inner()
        write_scope(inner, done.scope)
        reducing.declare(unit)
        self.layout.hint = 0
        self.alone.write(inner, done.part, reducing, first=True)
        reducing.finish(inner, self.block, 1, ALONE_SITE)
        unit.open("if (threadIdx.x == 0)")
        leave(unit, reducing, "part", f"o * {self.parts} + part", "all")
        unit.close()
        unit.add("__syncthreads();")
        unit.close()
        self._join(body.inner(), reducing, number)
        unit.add("__syncthreads();")
        unit.close()
        read_whole(unit, body, reducing, "ka_fresh(&{})")
