"""Writes scans of few long rows: `parts` blocks share a row, in three launches (`totals.py`)."""

from __future__ import annotations

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.ir.sizes import multiple_of, size_text
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.loops.passes import plan_passes
from kernel_assistant.generator.print.cpu.common import identity
from kernel_assistant.generator.print.cpu.scan import before_scans, carry_type, direction, step
from kernel_assistant.generator.print.cuda.common import OPERATOR, write_scope
from kernel_assistant.generator.print.cuda.group import VectorWriter, make_layout
from kernel_assistant.generator.print.cuda.rows import shift_text
from kernel_assistant.generator.print.cuda.scans.rows import follow, slack, sweep, write_tiles
from kernel_assistant.generator.print.cuda.scans.totals import before_parts, total, total_buffers
from kernel_assistant.generator.print.cuda.split import Emitted
from kernel_assistant.generator.print.render import KernelSource, StatementWriter, pointers
from kernel_assistant.records import Launch


def emit_scan_split(nest: LoopNest, schedule: Schedule) -> Emitted:
    rows = _Rows(nest, schedule)
    pairs = [
        rows.totals(),
        before_parts(nest, 32 if schedule["parts"] <= 128 else 256, parts=schedule["parts"]),
        rows.results(),
    ]
    buffers = total_buffers(nest, (size_text(nest.size(nest.outer)), str(schedule["parts"])))
    return [unit for unit, _ in pairs], [launch for _, launch in pairs], buffers


class _Rows:
    def __init__(self, nest: LoopNest, schedule: Schedule) -> None:
        plan = plan_passes(nest)
        if len(plan.passes) > 1 or plan.stores:
            raise Unsupported("a scan in parts after a reduction")
        self.nest, self.part, self.reverse = nest, plan.passes[0], direction(nest)
        self.block, self.vec, self.items = schedule["block"], schedule["vec"], schedule["items"]
        self.parts = schedule["parts"]
        if self.block * self.items > 1024:
            raise Unsupported("a tile of a scan has at most 1024 vectors")
        if self.reverse and not multiple_of(nest.size(nest.reduced), self.vec):
            raise Unsupported("a reverse scan of rows that are not whole vectors")
        self.layout = make_layout(
            nest, nest.reduced, nest.outer, self.vec, schedule["hint"], shiftable=not self.reverse
        )
        self.layout.index = "int64_t"
        follow(self.layout, self.reverse)

    def _begin(self, name: str) -> tuple[KernelSource, StatementWriter]:
        """Begins a kernel: declares the part [begin, end) of row o, in whole tiles, that a block handles. Returns the
        source and the writer of its statements.
        """
        nest, tile = self.nest, self.block * self.vec * self.items
        unit = KernelSource(nest.prefix + name, "cuda")
        unit.add(f"const int64_t R = {unit.size(nest.size(nest.reduced))};")
        unit.add_if_used("o", f"const int64_t o = blockIdx.x / {self.parts};")
        pointers(unit, nest, nest.outer, "o")
        whole = f"R{slack(self.layout)}"
        unit.add(f"const int64_t share = ({whole} + {self.parts * tile - 1}) / {self.parts * tile} * {tile};")
        unit.add(f"const int64_t begin = blockIdx.x % {self.parts} * share, end = ka_min({whole}, begin + share);")
        unit.add(f"const int64_t first = (int64_t)threadIdx.x * {self.vec}{shift_text(unit, nest, self.layout)};")
        body = StatementWriter(unit, nest)
        write_scope(body, self.part.scope)
        return unit, body

    def totals(self) -> tuple[KernelSource, Launch]:
        """Returns the kernel and the launch in which each block computes the totals of its part of a row."""
        unit, body = self._begin("scan_totals")
        scans = self.nest.scans
        for number, scan in enumerate(scans):
            unit.add(f"{carry_type(scan)} sum{number} = {identity(scan)};")
        width = self.block * self.vec
        unit.open(f"for (int64_t tile = begin; tile < end; tile += {self.items * width})")
        before = before_scans(self.part, scans)
        group = VectorWriter(body, self.layout, "[n]")
        group.declare(before, f"[{self.items}]")
        sweep(unit, self.layout.index, self.items, width)
        group.load(before)
        unit.close()
        sweep(unit, self.layout.index, self.items, width)
        inner = group.open()
        inner.write(before, group.texts())
        inside = self.layout.inside()
        for number, scan in enumerate(scans):
            value = step(scan, f"sum{number}", inner.name(scan.arg))
            unit.add(f"{f'if ({inside}) ' if inside else ''}sum{number} = {value};")
        for _ in range(3):
            unit.close()
        for number, scan in enumerate(scans):
            kind = f"ka_reduce<{number}, {self.block}, 1, {OPERATOR[scan.kind]}>"
            unit.add(f"sum{number} = {kind}(sum{number}, ({carry_type(scan)}){identity(scan)});")
            unit.add(f"if (threadIdx.x == 0) {unit.buffer(total(number))}[blockIdx.x] = sum{number};")
        return self._finish(unit)

    def results(self) -> tuple[KernelSource, Launch]:
        """Returns the kernel and the launch that store the results. Each part of a row begins with the running values
        before this part."""
        unit, body = self._begin("scan_rows")
        for number, scan in enumerate(self.nest.scans):
            unit.add(f"{carry_type(scan)} carry{number} = {unit.buffer(total(number))}[blockIdx.x];")
        write_tiles(body, self.part, self.items, self.block, self.layout, "begin", "end")
        return self._finish(unit)

    def _finish(self, unit: KernelSource) -> tuple[KernelSource, Launch]:
        unit.finish(bounds=f"__launch_bounds__({self.block}) ")
        blocks = f"({size_text(self.nest.size(self.nest.outer))}) * {self.parts}"
        return unit, unit.launch((blocks, "1", "1"), self.block)
