"""Writes cumulative sums, products and extremes in which a thread handles a column, a chunk of a column, or a short
row."""

from __future__ import annotations

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import PrefixScan
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.ir.sizes import multiple_of, size_text
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.loops.passes import Pass, plan_passes
from kernel_assistant.generator.print.cpu.common import identity
from kernel_assistant.generator.print.cpu.scan import after_scans, before_scans, carry_type, direction, step
from kernel_assistant.generator.print.cuda.common import write_scope
from kernel_assistant.generator.print.cuda.group import VectorLayout, VectorWriter, make_layout
from kernel_assistant.generator.print.cuda.scans.rows import follow
from kernel_assistant.generator.print.cuda.scans.totals import before_parts, total, total_buffers
from kernel_assistant.generator.print.cuda.split import Emitted
from kernel_assistant.generator.print.render import KernelSource, StatementWriter, pointers
from kernel_assistant.records import Launch


def emit_scan_cols(nest: LoopNest, schedule: Schedule) -> Emitted:
    """Returns the kernels, launches and scratch buffers of scans in which a thread scans a column. If the schedule's
    `chunk` is not 0, a thread scans a chunk of so many rows of a column instead, in three launches: the totals of the
    chunks, the running values before each chunk, the results.
    """
    columns = _ColumnThreads(nest, schedule)
    if not schedule["chunk"]:
        unit, launch = columns.results()
        return [unit], [launch], ()
    rows, chunks = size_text(nest.size(nest.outer)), f"cdiv({size_text(nest.size(nest.reduced))}, {schedule['chunk']})"
    buffers = total_buffers(nest, (rows, chunks, size_text(nest.size(nest.inner))))
    pairs = [columns.totals(), before_parts(nest, schedule["join"], schedule["chunk"]), columns.results()]
    return [unit for unit, _ in pairs], [launch for _, launch in pairs], buffers


class _ColumnThreads:
    def __init__(self, nest: LoopNest, schedule: Schedule) -> None:
        plan = plan_passes(nest)
        if len(plan.passes) > 1 or plan.stores:
            raise Unsupported("a scan of columns after a reduction")
        self.nest, self.schedule, self.part, self.reverse = nest, schedule, plan.passes[0], direction(nest)
        self.block, self.chunk = schedule["block"], schedule["chunk"]
        layout = make_layout(nest, nest.inner, [*nest.outer, *nest.reduced], 1, schedule["hint"], shiftable=False)
        layout.index, layout.limit, layout.full, layout.loops = "int64_t", "I", True, [(nest.reduced, "r")]
        self.layout: VectorLayout = layout

    def totals(self) -> tuple[KernelSource, Launch]:
        """Returns the kernel and the launch in which each thread computes the totals of its chunk of a column."""
        unit = KernelSource(self.nest.prefix + "scan_totals", "cuda")
        body = self._begin(unit)
        self._carries(unit, {number: identity(scan) for number, scan in enumerate(self.nest.scans)})
        self._sweep(body, stores=False)
        for number, _ in enumerate(self.nest.scans):
            unit.add(f"{unit.buffer(total(number))}[t] = carry{number};")
        return self._finish(unit)

    def results(self) -> tuple[KernelSource, Launch]:
        """Returns the kernel and the launch that store the results. Each chunk of a column begins with the running
        values before this chunk."""
        unit = KernelSource(self.nest.prefix + "scan_cols", "cuda")
        body = self._begin(unit)
        started = {
            number: f"{unit.buffer(total(number))}[t]" if self.chunk else identity(scan)
            for number, scan in enumerate(self.nest.scans)
        }
        self._carries(unit, started)
        self._sweep(body, stores=True)
        return self._finish(unit)

    def _begin(self, unit: KernelSource) -> StatementWriter:
        """Declares the position of this thread: rows [begin, end) of column e in row group o. Neighbouring threads have
        neighbouring columns; behind the last column follow the columns of the next chunk or row group.
        """
        nest, chunk = self.nest, self.chunk
        outer, reduced, inner = (unit.size(nest.size(axes)) for axes in (nest.outer, nest.reduced, nest.inner))
        unit.add(f"const int64_t R = {reduced}, I = {inner};")
        unit.add(f"const int64_t t = (int64_t)blockIdx.x * {self.block} + threadIdx.x;")
        if chunk:
            unit.add(f"const int64_t chunks = (R + {chunk - 1}) / {chunk};")
            unit.add(f"if (t >= ({outer}) * chunks * I) return;")
            unit.add("const int64_t e = t % I, p = t / I % chunks;")
            unit.add_if_used("o", "const int64_t o = t / I / chunks;")
            unit.add(f"const int64_t end = ka_min(R, (p + 1) * {chunk});")
        else:
            unit.add(f"if (t >= ({outer}) * I) return;")
            unit.add("const int64_t e = t % I, end = R;")
            unit.add_if_used("o", "const int64_t o = t / I;")
        pointers(unit, nest, nest.outer, "o")
        body = StatementWriter(unit, nest)
        loads = {}
        for access in dict.fromkeys(nest.loads.values()):
            position = unit.position(access, nest.inner, "e") or "0"
            loads[id(access)] = unit.fetch(access, position)
        body.write(self.part.scope, loads, "s")
        return body

    def _carries(self, unit: KernelSource, started: dict[int, str]) -> None:
        for number, scan in enumerate(self.nest.scans):
            unit.add(f"{carry_type(scan)} carry{number} = {started[number]};")
        unit.add(f"int64_t base = {f'p * {self.chunk}' if self.chunk else '0'};")

    def _sweep(self, body: StatementWriter, stores: bool) -> None:
        """Writes the loop over the rows. Each iteration issues the loads of `unroll` rows before it uses them; a second
        loop handles the rows that remain. With `stores`, the loop also writes the outputs; without, it only advances
        the scans' running values."""
        unit, unroll = body.unit, self.schedule["unroll"]
        for batch in (unroll, 1) if unroll > 1 else (1,):
            unit.open(f"for (; base + {batch} <= end; base += {batch})")
            self._batch(body, batch, stores)
            unit.close()

    def _batch(self, body: StatementWriter, batch: int, stores: bool) -> None:
        unit, part, scans = body.unit, self.part, self.nest.scans
        before = before_scans(part, scans)
        group = VectorWriter(body, self.layout, "[u]")
        loaded = part.body if stores else before
        group.declare(loaded, f"[{batch}]")
        self._rows(unit, batch)
        group.load(loaded)
        unit.close()
        self._rows(unit, batch)
        if stores:
            group.declare_stores(part.stores)
        inner = group.open()
        inner.write(before, group.texts())
        _advance(inner, scans, results=stores)
        if stores:
            inner.write(after_scans(part, scans), group.texts())
            group.put(inner, part.stores)
        unit.close()
        if stores:
            group.store(part.stores)
        unit.close()

    def _rows(self, unit: KernelSource, batch: int) -> None:
        unit.add("#pragma unroll")
        unit.open(f"for (int u = 0; u < {batch}; ++u)")
        unit.add_if_used("r", "const int64_t r = " + ("R - 1 - (base + u);" if self.reverse else "base + u;"))

    def _finish(self, unit: KernelSource) -> tuple[KernelSource, Launch]:
        unit.finish(bounds=f"__launch_bounds__({self.block}) ")
        nest = self.nest
        chunks = f" * cdiv({size_text(nest.size(nest.reduced))}, {self.chunk})" if self.chunk else ""
        threads = f"({size_text(nest.size(nest.outer))}) * ({size_text(nest.size(nest.inner))}){chunks}"
        return unit, unit.launch((f"cdiv({threads}, {self.block})", "1", "1"), self.block)


def _advance(inner: StatementWriter, scans: list[PrefixScan], results: bool) -> None:
    """Writes statements that add one element to each scan's running value (the C variables carry0, …). With `results`,
    also writes and registers the scans' values at that element, so that later statements read them.
    """
    unit = inner.unit
    for number, scan in enumerate(scans):
        value = step(scan, f"carry{number}", inner.name(scan.arg))
        if not results:
            unit.add(f"carry{number} = {value};")
            continue
        unit.add(f"const {carry_type(scan)} next{number} = {value};")
        kept = "carry" if scan.exclusive else "next"
        unit.add(f"const {scan.ctype} scan{number} = ({scan.ctype}){kept}{number};")
        unit.add(f"carry{number} = next{number};")
        inner.names[id(scan)] = f"scan{number}"


def emit_scan_thread(nest: LoopNest, schedule: Schedule) -> tuple[KernelSource, Launch]:
    """Returns a kernel in which a thread scans one short row, and its launch."""
    plan, block, vec = plan_passes(nest), schedule["block"], schedule["vec"]
    if len(plan.passes) > 1 or plan.stores:
        raise Unsupported("a scan by one thread after a reduction")
    reverse, size = direction(nest), nest.size(nest.reduced)
    if vec > 1 and not multiple_of(size, vec):
        raise Unsupported("vectors of rows that are not whole vectors")
    part, unit = plan.passes[0], KernelSource(nest.prefix + "scan_thread", "cuda")
    layout = make_layout(nest, nest.reduced, nest.outer, vec, schedule["hint"], shiftable=False)
    layout.index, layout.full = "int64_t", True
    unit.add(f"const int64_t R = {unit.size(size)};")
    unit.add(f"const int64_t o = (int64_t)blockIdx.x * {block} + threadIdx.x;")
    unit.add(f"if (o >= {unit.size(nest.size(nest.outer))}) return;")
    pointers(unit, nest, nest.outer, "o")
    body = StatementWriter(unit, nest)
    write_scope(body, part.scope)
    follow(layout, reverse)
    for number, scan in enumerate(nest.scans):
        unit.add(f"{carry_type(scan)} carry{number} = {identity(scan)};")
    unit.add("#pragma unroll 4")
    unit.open(f"for (int64_t e = 0; e < R; e += {vec})")
    _vector(body, part, layout)
    unit.close()
    unit.finish(bounds=f"__launch_bounds__({block}) ")
    return unit, unit.launch((f"cdiv({size_text(nest.size(nest.outer))}, {block})", "1", "1"), block)


def _vector(body: StatementWriter, part: Pass, layout: VectorLayout) -> None:
    """Writes the loads, the scan steps and the stores of the vector at position `e`."""
    unit, scans = body.unit, body.nest.scans
    group = VectorWriter(body, layout, "")
    group.declare(part.body)
    group.load(part.body)
    group.declare_stores(part.stores)
    inner = group.open()
    inner.write(before_scans(part, scans), group.texts())
    _advance(inner, scans, results=True)
    inner.write(after_scans(part, scans), group.texts())
    group.put(inner, part.stores)
    unit.close()
    group.store(part.stores)
