"""Writes reductions of rows that are too long for one cluster: `parts` blocks share a row. Each keeps its part in
shared memory, and the blocks wait for each other's partial results.

A block that has waited too long computes the partial results of the whole row itself, in the same order. So no block
depends on another one being on the device.
"""

from __future__ import annotations

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.ir.sizes import size_text
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.loops.passes import Pass, Passes, nothing, plan_passes
from kernel_assistant.generator.print.cuda.common import PassReductions, many_additions, store_scope, write_scope
from kernel_assistant.generator.print.cuda.group import index_type, make_layout
from kernel_assistant.generator.print.cuda.partial import join_parts, leave, left_buffers
from kernel_assistant.generator.print.cuda.rows import shift_text
from kernel_assistant.generator.print.cuda.shares import ALONE_SITE, bounds, zero
from kernel_assistant.generator.print.cuda.sweeps import Sweep, plan_copies
from kernel_assistant.generator.print.render import KernelSource, StatementWriter, pointers
from kernel_assistant.records import BufferSpec, Launch


def emit_team(nest: LoopNest, schedule: Schedule) -> tuple[list[KernelSource], list[Launch], tuple[BufferSpec, ...]]:
    team = _BlocksPerRow(nest, schedule, plan_passes(nest, nothing, joint=True))
    unit, launch = team.write()
    zeroing, first = zero(nest, [(f"arrived{number}",) for number in range(team.meetings)])
    return [zeroing, unit], [first, launch], tuple(team.scratch)


class _BlocksPerRow:
    def __init__(self, nest: LoopNest, schedule: Schedule, plan: Passes) -> None:
        self.nest, self.plan, self.parts = nest, plan, schedule["parts"]
        self.block, self.vec, unroll = schedule["block"], schedule["vec"], schedule["unroll"]
        held = schedule["held"]
        size = nest.size(nest.reduced)
        if not isinstance(size, int):
            raise Unsupported("rows of free size in shared memory")
        self.size, self.rows = size, nest.size(nest.outer)
        layout = make_layout(nest, nest.reduced, nest.outer, self.vec, schedule["hint"], shiftable=True)
        step = self.block * self.vec
        self.share = -(-size // (self.parts * step)) * step
        layout.index, layout.limit = index_type(self.share * self.parts), "end"
        even = self.share * self.parts == size and (self.share // step - held) % unroll == 0
        layout.full = layout.shift is None and even
        self.layout = layout
        slack = self.vec - 1 if layout.shift is not None else 0
        sweeps = -(-(self.share + slack - held * step) // (step * unroll)) * unroll
        if self.share < held * step:
            raise Unsupported(f"{held} vectors a thread are more than a part of {self.share}")
        copies = plan_copies(nest, plan, sweeps * step, bool(schedule["stage"]))
        self.sweep = Sweep(layout, self.block, step, unroll, copies, held)
        self.alone = Sweep(layout, self.block, step, 1)
        self.scratch: list[BufferSpec] = []
        self.meetings = 0

    def write(self) -> tuple[KernelSource, Launch]:
        """Returns the kernel, in which a block handles one part of one row, and its launch."""
        unit = KernelSource(self.nest.prefix + "rows_team", "cuda")
        unit.add(f"const int64_t o = blockIdx.x / {self.parts};")
        unit.add(f"const int part = blockIdx.x % {self.parts};")
        pointers(unit, self.nest, self.nest.outer, "o")
        if self.layout.shift is not None:
            unit.add(f"const int shift = 0{shift_text(unit, self.nest, self.layout)};")
        bounds(unit, self.layout, self.parts, self.share, self.size)
        self.sweep.declare(unit)
        body = StatementWriter(unit, self.nest)
        for number, part in enumerate(self.plan.passes):
            write_scope(body, part.scope)
            reducing = PassReductions(self.nest, part, joint=True, many=many_additions(self.share, self.block))
            reducing.declare(unit)
            self.sweep.write(body, part, reducing, first=number == 0)
            reducing.finish(body, self.block, 1)
            if part.reduces:
                self._meet(body, part, reducing)
        write_scope(body, self.plan.scope)
        store_scope(body, self.plan.stores, "part == 0 && threadIdx.x == 0")
        unit.finish(bounds=f"__launch_bounds__({self.block}) ")
        blocks = f"{size_text(self.rows)} * {self.parts}"
        return unit, unit.launch((blocks, "1", "1"), self.block, str(self.sweep.copies.shared))

    def _meet(self, body: StatementWriter, part: Pass, reducing: PassReductions) -> None:
        """Writes code that publishes this block's partial results, waits for those of the other blocks, and combines
        all."""
        unit, index = body.unit, f"o * {self.parts} + part"
        counter = f"{unit.buffer(f'arrived{self.meetings}')} + o"
        unit.open("if (threadIdx.x == 0)")
        leave(unit, reducing, "part", index, "all")
        unit.add(f"ka_team_arrive({counter});")
        unit.close()
        unit.open(f"if (!ka_team_wait({counter}, {self.parts}))")
        unit.open(f"for (int part = 0; part < {self.parts}; ++part)")
        bounds(unit, self.layout, self.parts, self.share, self.size)
        inner = body.inner()
        reducing.declare(unit)
        self.alone.write(inner, part, reducing, first=True)
        reducing.finish(inner, self.block, 1, ALONE_SITE)
        unit.open("if (threadIdx.x == 0)")
        leave(unit, reducing, "part", index, "all")
        unit.close()
        unit.add("__syncthreads();")
        unit.close()
        unit.close()
        join_parts(unit, body, reducing, self.parts, self.block, "ka_fresh(&{})")
        rows = size_text(self.rows)
        self.scratch += left_buffers(reducing, "part", (rows, str(self.parts)))
        self.scratch.append(BufferSpec(name=f"arrived{self.meetings}", dtype="i32", shape=(rows,)))
        self.meetings += 1
