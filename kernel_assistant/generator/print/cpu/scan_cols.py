"""Writes cumulative sums, products and extremes of columns for the CPU, with a running value for each column. Few long
columns are divided into chunks of rows, in three steps: the totals of the chunks, the running values before each chunk,
the results.
"""

from __future__ import annotations

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.ir.sizes import size_text
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.loops.passes import plan_passes
from kernel_assistant.generator.print.cpu.cols import open_columns, scope_loop
from kernel_assistant.generator.print.cpu.common import identity, loads, parallel, stores
from kernel_assistant.generator.print.cpu.scan import after_scans, before_scans, carry_type, direction, step
from kernel_assistant.generator.print.cpu.split import SCRATCH
from kernel_assistant.generator.print.render import KernelSource, StatementWriter, pointers
from kernel_assistant.records import BufferSpec


def emit_scan_cols(nest: LoopNest, schedule: Schedule) -> tuple[KernelSource, tuple[BufferSpec, ...]]:
    if not schedule["chunk"]:
        return emit_scan_whole(nest, schedule["tile"]), ()
    columns = _ScannedColumns(nest, schedule["tile"], schedule["chunk"])
    columns.sweep(results=False)
    columns.combine()
    columns.sweep(results=True)
    chunks = f"cdiv({size_text(nest.size(nest.reduced))}, {schedule['chunk']})"
    shape = (size_text(nest.size(nest.outer)), chunks, size_text(nest.size(nest.inner)))
    kinds = [SCRATCH[carry_type(scan)] for scan in nest.scans]
    return columns.unit, tuple(
        BufferSpec(name=f"part_s{number}", dtype=kind, shape=shape) for number, kind in enumerate(kinds)
    )


def emit_scan_whole(nest: LoopNest, tile: int) -> KernelSource:
    """Returns the kernel of scans of columns that are not divided into chunks."""
    columns = _ScannedColumns(nest, tile, 0)
    columns.sweep(results=True)
    return columns.unit


class _ScannedColumns:
    def __init__(self, nest: LoopNest, tile: int, chunk: int) -> None:
        plan = plan_passes(nest)
        if len(plan.passes) > 1 or plan.stores:
            raise Unsupported("a scan of columns after a reduction")
        self.nest, self.part, self.tile, self.chunk = nest, plan.passes[0], tile, chunk
        self.unit = unit = KernelSource(nest.prefix + "scan_cols", "cpu")
        sizes = [unit.size(nest.size(axes)) for axes in (nest.outer, nest.reduced, nest.inner)]
        unit.add(f"const int64_t O = {sizes[0]}, R = {sizes[1]}, I = {sizes[2]};")
        chunks = f"(R + {chunk - 1}) / {chunk}" if chunk else "1"
        unit.add(f"const int64_t tiles = (I + {tile - 1}) / {tile}, chunks = {chunks};")

    def sweep(self, results: bool) -> None:
        """Writes the parallel loop over the tasks; each task scans a chunk of rows of a tile of columns. With
        `results`, it computes and stores the outputs, otherwise it stores the totals of the chunks.
        """
        unit, nest, tile = self.unit, self.nest, self.tile
        parallel(unit, "O * R * I")
        unit.open("for (int64_t task = 0; task < O * chunks * tiles; ++task)")
        unit.add_if_used("o", "const int64_t o = task / tiles / chunks;")
        unit.add(f"const int64_t begin = task % tiles * {tile};")
        unit.add(f"const int n = (int)ka_min(I - begin, (int64_t){tile});")
        unit.add_if_used("base", "const int64_t base = task / tiles * I + begin;")
        pointers(unit, nest, nest.outer, "o")
        body = StatementWriter(unit, nest)
        scope_loop(body, self.part.scope, tile)
        for number, scan in enumerate(nest.scans):
            unit.add(f"{carry_type(scan)} carry{number}[{tile}];")
            known = f"{self._total(number)}[base + j]" if results and self.chunk else identity(scan)
            unit.add(f"for (int j = 0; j < n; ++j) carry{number}[j] = {known};")
        if self.chunk:
            unit.add(f"const int64_t first = task / tiles % chunks * {self.chunk};")
            unit.open(f"for (int64_t c = first; c < ka_min(R, first + {self.chunk}); ++c)")
        else:
            unit.open("for (int64_t c = 0; c < R; ++c)")
        unit.add_if_used("q", "const int64_t q = " + ("R - 1 - c;" if direction(nest) else "c;"))
        self._row(body, results)
        unit.close()
        for number, _ in enumerate([] if results else nest.scans):
            unit.add(f"for (int j = 0; j < n; ++j) {self._total(number)}[base + j] = carry{number}[j];")
        unit.close()

    def _row(self, body: StatementWriter, results: bool) -> None:
        unit, nest, part = self.unit, self.nest, self.part
        inner = open_columns(body)
        at = loads(unit, nest, (nest.reduced, "q"), (nest.inner, "i"))
        inner.write(before_scans(part, nest.scans), at)
        for number, scan in enumerate(nest.scans):
            value = step(scan, f"carry{number}[j]", inner.name(scan.arg))
            if results:
                unit.add(f"const {carry_type(scan)} next{number} = {value};")
                source = f"carry{number}[j]" if scan.exclusive else f"next{number}"
                unit.add(f"const {scan.ctype} scan{number} = ({scan.ctype}){source};")
                inner.names[id(scan)] = f"scan{number}"
                value = f"next{number}"
            unit.add(f"carry{number}[j] = {value};")
        if results:
            inner.write(after_scans(part, nest.scans), at)
            stores(inner, part.stores, (nest.reduced, "q"), (nest.inner, "i"))
        unit.close()

    def combine(self) -> None:
        """Writes the loops that replace the total of each chunk by the running value before the chunk."""
        unit = self.unit
        for number, scan in enumerate(self.nest.scans):
            kind = carry_type(scan)
            unit.open("for (int64_t task = 0; task < O * I; ++task)")
            unit.add(f"{kind} run = {identity(scan)};")
            unit.add(f"{kind}* at = {self._total(number)} + task / I * chunks * I + task % I;")
            unit.open("for (int64_t c = 0; c < chunks; ++c, at += I)")
            unit.add(f"const {kind} own = *at;")
            unit.add("*at = run;")
            unit.add(f"run = {step(scan, 'run', 'own')};")
            unit.close()
            unit.close()

    def _total(self, number: int) -> str:
        return self.unit.buffer(f"part_s{number}")
