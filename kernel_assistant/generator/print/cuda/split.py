"""Writes reductions of few long rows, or few columns: `parts` blocks share a row. They store partial results in scratch
memory, and the next launch begins by combining these, always in the same order.
"""

from __future__ import annotations

from kernel_assistant.generator.ir.expr import Expr
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.ir.sizes import size_text
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.loops.passes import Pass, Passes, below, nothing, plan_passes
from kernel_assistant.generator.print.cuda.cols import JOINT, ColumnWriter, begin_columns, column_blocks, column_layout
from kernel_assistant.generator.print.cuda.common import (
    OPERATOR,
    STEP,
    PassReductions,
    identity,
    many_additions,
    store_scope,
    write_scope,
)
from kernel_assistant.generator.print.cuda.group import VectorLayout, make_layout
from kernel_assistant.generator.print.cuda.partial import (
    FIELDS,
    JOIN_SITE,
    join_parts,
    leave,
    left_buffers,
    read_whole,
    slots,
)
from kernel_assistant.generator.print.cuda.rows import shift_text
from kernel_assistant.generator.print.cuda.sweeps import Sweep
from kernel_assistant.generator.print.cuda.transposed import BANK
from kernel_assistant.generator.print.render import KernelSource, StatementWriter, pointers
from kernel_assistant.records import BufferSpec, Launch

Emitted = tuple[list[KernelSource], list[Launch], tuple[BufferSpec, ...]]
#: Threads of a launch that only joins.
JOINING = 1024


def emit_split_rows(nest: LoopNest, schedule: Schedule) -> Emitted:
    plan = plan_passes(nest, nothing, joint=True)
    writer = _RowParts(nest, schedule, plan)
    for number in range(len(plan.passes)):
        writer.launch_pass(number)
    if plan.stores:
        writer.launch_end()
    return writer.units, writer.launches, tuple(writer.scratch)


class _RowParts:
    def __init__(self, nest: LoopNest, schedule: Schedule, plan: Passes) -> None:
        self.nest, self.schedule, self.plan = nest, schedule, plan
        self.block, self.vec, self.parts = schedule["block"], schedule["vec"], schedule["parts"]
        self.layout: VectorLayout = make_layout(
            nest, nest.reduced, nest.outer, self.vec, schedule["hint"], shiftable=True
        )
        self.layout.index, self.layout.limit = "int64_t", "end"
        self.size, self.rows = nest.size(nest.reduced), nest.size(nest.outer)
        self.units: list[KernelSource] = []
        self.launches: list[Launch] = []
        self.scratch: list[BufferSpec] = []
        self.scope: list[Expr] = []
        self.done: list[PassReductions] = []

    def _begin(self, unit: KernelSource) -> StatementWriter:
        """Writes code that reads the results of earlier launches for this row, and computes the values that depend only
        on them. Returns the writer of the statements that follow."""
        pointers(unit, self.nest, self.nest.outer, "o")
        body = StatementWriter(unit, self.nest)
        for reducing in self.done:
            if self.schedule["join"]:
                read_whole(unit, body, reducing)
            else:
                join_parts(unit, body, reducing, self.parts, self.block)
        write_scope(body, self.scope)
        return body

    def launch_pass(self, number: int) -> None:
        part = self.plan.passes[number]
        self.scope += part.scope
        unit = KernelSource(self.nest.prefix + f"rows_part{number}", "cuda")
        step, size = self.block * self.vec, unit.size(self.size)
        # Every other launch runs backwards: it begins with what the one before has left in the L2 cache.
        unit.add("const int64_t block = " + ("gridDim.x - 1 - blockIdx.x;" if number % 2 else "blockIdx.x;"))
        if self.schedule["join"] and not part.reduces:
            # Nobody has to join anything: as many blocks as there is work for.
            share = step * self.schedule["unroll"] * 2
            unit.add(f"const int64_t share = {share}, parts = ({size} + {share - 1}) / {share};")
            parts, blocks = "parts", f"cdiv({size_text(self.size)}, {share})"
        else:
            parts, blocks = str(self.parts), str(self.parts)
            unit.add(f"const int64_t share = ({size} + {self.parts * step - 1}) / {self.parts * step} * {step};")
        unit.add_if_used("o", f"const int64_t o = block / {parts};")
        unit.add(f"const int64_t begin = block % {parts} * share;")
        self._sweep(unit, self._begin(unit), part, parts)
        self._finish(unit, f"{size_text(self.rows)} * {blocks}")
        if part.reduces and self.schedule["join"]:
            self._launch_join(number, self.done[-1])

    def _sweep(self, unit: KernelSource, body: StatementWriter, part: Pass, parts: str) -> None:
        """Writes a pass over the part [begin, begin + share) of the row, counted from the first aligned element."""
        many = many_additions(self.size, self.parts * self.block)
        layout, reducing = self.layout, PassReductions(self.nest, part, joint=True, many=many)
        shift = shift_text(unit, self.nest, layout)
        unit.add(f"const int64_t R = {unit.size(self.size)};")
        last = f"block % {parts} == {parts} - 1 ? R : ka_min(R, begin + share{shift})"
        unit.add(f"const int64_t end = {last};")
        unit.add(f"const int64_t first = begin + threadIdx.x * {self.vec}{shift};")
        reducing.declare(unit)
        sweep = Sweep(layout, self.block, self.block * self.vec, self.schedule["unroll"])
        sweep.write(body, part, reducing, first=True)
        reducing.finish(body, self.block, 1)
        if part.reduces:
            unit.open("if (threadIdx.x == 0)")
            leave(unit, reducing, "part", "block", "all")
            unit.close()
            self.scratch += left_buffers(reducing, "part", (size_text(self.rows), str(self.parts)))
            self.done.append(reducing)

    def _launch_join(self, number: int, reducing: PassReductions) -> None:
        """Adds a launch in which one block for each row combines the parts, so that later launches read one result."""
        unit = KernelSource(self.nest.prefix + f"rows_join{number}", "cuda")
        unit.add("const int64_t o = blockIdx.x;")
        join_parts(unit, StatementWriter(unit, self.nest), reducing, self.parts, JOINING)
        unit.open("if (threadIdx.x == 0)")
        leave(unit, reducing, "whole", "o", "past")
        unit.close()
        self.scratch += left_buffers(reducing, "whole", (size_text(self.rows),))
        self._finish(unit, size_text(self.rows), JOINING)

    def launch_end(self) -> None:
        """Adds a launch that computes and stores the outputs that do not vary along the reduced loop R."""
        unit = KernelSource(self.nest.prefix + "rows_end", "cuda")
        unit.add_if_used("o", "const int64_t o = blockIdx.x;")
        body = self._begin(unit)
        write_scope(body, self.plan.scope)
        store_scope(body, self.plan.stores, "threadIdx.x == 0")
        self._finish(unit, size_text(self.rows))

    def _finish(self, unit: KernelSource, blocks: str, block: int = 0) -> None:
        unit.finish(bounds=f"__launch_bounds__({block or self.block}) ")
        self.units.append(unit)
        self.launches.append(unit.launch((blocks, "1", "1"), block or self.block))


def emit_split_cols(nest: LoopNest, schedule: Schedule) -> Emitted:
    plan = plan_passes(nest, nothing, joint=JOINT)
    writer = _ColumnParts(nest, schedule, plan)
    for number in range(len(plan.passes)):
        writer.launch_pass(number)
    if plan.stores:
        writer.launch_end()
    return writer.units, writer.launches, tuple(writer.scratch)


class _ColumnParts:
    def __init__(self, nest: LoopNest, schedule: Schedule, plan: Passes) -> None:
        self.nest, self.schedule, self.plan = nest, schedule, plan
        self.parts, self.threads = schedule["parts"], schedule["tx"] * schedule["ty"]
        self.layout = column_layout(nest, schedule)
        self.columns = ColumnWriter(nest, schedule, self.layout, plan)
        self.units: list[KernelSource] = []
        self.launches: list[Launch] = []
        self.scratch: list[BufferSpec] = []
        self.scope: list[Expr] = []
        self.done: list[Pass] = []

    def _begin(self, unit: KernelSource, block: str, follows: Passes) -> StatementWriter:
        begin_columns(unit, self.nest, self.schedule, block)
        body = StatementWriter(unit, self.nest)
        for part in self.done:
            self._join(body, part)
        self.columns.scope(body, self.scope, follows)
        return body

    def launch_pass(self, number: int) -> None:
        part = self.plan.passes[number]
        self.scope += part.scope
        unit = KernelSource(self.nest.prefix + f"cols_part{number}", "cuda")
        body = self._begin(unit, f"(blockIdx.x / {self.parts})", Passes([part], [], []))
        # Whole banks of what is turned.
        whole = BANK if self.columns.turning.tiles else 1
        times = f" * {whole}" if whole > 1 else ""
        unit.add(f"const int64_t share = (R + {whole * self.parts - 1}) / {whole * self.parts}{times};")
        unit.add(f"const int64_t begin = blockIdx.x % {self.parts} * share, end = ka_min(R, begin + share);")
        self.columns.sweep(body, part, "begin", "end")
        if part.reduces:
            self.columns.finish(body, part)
            self._leave(unit, part)
            self.done.append(part)
        blocks = f"{column_blocks(self.nest, self.schedule)} * {self.parts}"
        self._finish(unit, blocks, self.columns.turning.shared)

    def _place(self, part: str) -> str:
        return f"[(o * {self.parts} + {part}) * I + e + k]"

    def _leave(self, unit: KernelSource, part: Pass) -> None:
        if self.schedule["ty"] > 1:
            unit.open("if (ty == 0)")
        unit.add("#pragma unroll")
        unit.open(f"for (int k = 0; k < {self.schedule['vec']}; ++k)")
        guard = "" if self.layout.full else "if (e + k < I) "
        rows, width = size_text(self.nest.size(self.nest.outer)), size_text(self.nest.size(self.nest.inner))
        reducing, index = self.columns.reducing(part), self._place(f"blockIdx.x % {self.parts}")
        for name, source, _ in slots(reducing, "[k]"):
            unit.add(f"{guard}{unit.buffer(f'part_{name}')}{index} = all_{source};")
        self.scratch += left_buffers(reducing, "part", (rows, str(self.parts), width))
        unit.close()
        if self.schedule["ty"] > 1:
            unit.close()

    def _join(self, body: StatementWriter, part: Pass) -> None:
        """Writes code that combines the parts of every column: each thread that shares the column combines some parts,
        then the results of these threads are combined.
        """
        unit, reducing = body.unit, self.columns.reducing(part)
        for reduce in reducing.single:
            name = f"r{reducing.label(reduce)}"
            piece = f"{unit.buffer(f'part_{name}')}{self._place('p')}"
            step, ends = STEP[reduce.kind].format(f"past_{name}[k]", piece), ("", "")
            if reducing.label(reduce) in reducing.sums:
                step = f"past_{name}[k] = {piece}, ka_keep(past_{name}[k], total, rest);"
                ends = ("float total = 0, rest = 0;", f"ka_kept(past_{name}[k], total, rest);")
            site = JOIN_SITE + reducing.site(reduce)
            self._past(unit, f"past_{name}", reduce.ctype, identity(reduce), step, ends)
            unit.add(f"{self.columns.joining(site, OPERATOR[reduce.kind])}(past_{name});")
        for kind, x, _, reduce in reducing.pairs:
            name, state = f"j{reducing.label(reduce)}", f"ka_moments<{x.ctype}>"
            pieces = [f"{unit.buffer(f'part_{name}_{field}')}{self._place('p')}" for field in FIELDS[kind]]
            step = f"past_{name}[k] = ka_chan::join(past_{name}[k], {state}{{{', '.join(pieces)}}});"
            self._past(unit, f"past_{name}", state, f"{state}::none()", step)
            unit.add(f"{self.columns.joining(JOIN_SITE + reducing.site(reduce), 'ka_chan')}(past_{name});")
        reducing.take(body, "past_", "[k]")

    def _past(
        self, unit: KernelSource, name: str, kind: str, none: str, step: str, ends: tuple[str, str] = ("", "")
    ) -> None:
        """Declares `name`, an array with one value of the C type `kind` for each column of a thread, and writes the
        loop that combines this thread's parts in it. `none` is the neutral value, `step` the statement that adds part
        p, and `ends` are the statements before and after the loop, "" for none."""
        vec, ty = self.schedule["vec"], self.schedule["ty"]
        unit.add(f"{kind} {name}[{vec}];")
        unit.add("#pragma unroll")
        unit.open(f"for (int k = 0; k < {vec}; ++k)")
        unit.add(f"{name}[k] = {none};")
        guard = "" if self.layout.full else "if (e + k < I) "
        loop = f"{guard}for (int p = ty; p < {self.parts}; p += {ty}) {step}"
        for line in filter(None, (ends[0], loop, ends[1])):
            unit.add(line)
        unit.close()

    def launch_end(self) -> None:
        unit = KernelSource(self.nest.prefix + "cols_end", "cuda")
        wanted = below([output.expr for _, output in self.plan.stores], given=self.plan.given)
        self.scope = [expr for expr in self.scope if id(expr) in wanted]
        body = self._begin(unit, "blockIdx.x", Passes([], self.plan.scope, self.plan.stores))
        self.columns.scope(body, self.plan.scope)
        self.columns.store_outside(body, self.plan)
        self._finish(unit, column_blocks(self.nest, self.schedule))

    def _finish(self, unit: KernelSource, blocks: str, shared: int = 0) -> None:
        unit.finish(bounds=f"__launch_bounds__({self.threads}) ")
        self.units.append(unit)
        self.launches.append(unit.launch((blocks, "1", "1"), self.threads, str(shared)))
