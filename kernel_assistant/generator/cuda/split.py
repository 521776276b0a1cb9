"""Few long rows, or few columns: `parts` blocks share a row; partial results go through scratch memory, and the next
launch begins by joining them, always in the same order."""

from __future__ import annotations

from kernel_assistant.generator.cuda.cols import Columns, begin_columns, column_blocks, column_layout
from kernel_assistant.generator.cuda.common import (
    JOINT,
    OPERATOR,
    STEP,
    Reducing,
    identity,
    pointers,
    store_scope,
    write_scope,
)
from kernel_assistant.generator.cuda.group import Layout, make_layout
from kernel_assistant.generator.cuda.rows import shift_text, sweep
from kernel_assistant.generator.expr import Expr
from kernel_assistant.generator.nest import Nest
from kernel_assistant.generator.passes import Pass, Passes, nothing, plan_passes
from kernel_assistant.generator.render import Body, Unit
from kernel_assistant.generator.schedule import Schedule
from kernel_assistant.generator.sizes import size_text
from kernel_assistant.records import BufferSpec, Launch

Emitted = tuple[list[Unit], list[Launch], tuple[BufferSpec, ...]]
SCRATCH = {"double": "f64", "float": "f32", "int64_t": "i64", "bool": "b1"}
#: Fields of a joint state, in the order in which they are stored.
FIELDS = {"m2": ("count", "mean", "m2"), "sumexp": ("top", "total")}


def emit_split_rows(nest: Nest, schedule: Schedule) -> Emitted:
    plan = plan_passes(nest, nothing, joint=True)
    writer = _RowParts(nest, schedule, plan)
    for number in range(len(plan.passes)):
        writer.launch_pass(number)
    if plan.stores:
        writer.launch_end()
    return writer.units, writer.launches, tuple(writer.scratch)


class _RowParts:
    def __init__(self, nest: Nest, schedule: Schedule, plan: Passes) -> None:
        self.nest, self.schedule, self.plan = nest, schedule, plan
        self.block, self.vec, self.parts = schedule["block"], schedule["vec"], schedule["parts"]
        self.layout: Layout = make_layout(nest, nest.reduced, nest.outer, self.vec, schedule["hint"], shiftable=True)
        self.layout.at = "begin + {}"
        self.size, self.rows = nest.size(nest.reduced), nest.size(nest.outer)
        self.units: list[Unit] = []
        self.launches: list[Launch] = []
        self.scratch: list[BufferSpec] = []
        self.scope: list[Expr] = []
        self.done: list[Reducing] = []

    def _begin(self, unit: Unit) -> Body:
        """Join what the launches before left for this row, and compute what follows from it."""
        pointers(unit, self.nest, self.nest.outer, "o")
        body = Body(unit, self.nest)
        for reducing in self.done:
            self._join(body, reducing)
        write_scope(body, self.scope)
        return body

    def launch_pass(self, number: int) -> None:
        part = self.plan.passes[number]
        self.scope += part.scope
        unit = Unit(self.nest.prefix + f"rows_part{number}", "cuda")
        step = self.block * self.vec
        # Every other launch runs backwards: it begins with what the one before has left in the L2 cache.
        unit.add("const int64_t block = " + ("gridDim.x - 1 - blockIdx.x;" if number % 2 else "blockIdx.x;"))
        unit.add_if_used("o", f"const int64_t o = block / {self.parts};")
        unit.add(
            f"const int64_t share = ({unit.size(self.size)} + {self.parts * step - 1}) / {self.parts * step} * {step};"
        )
        unit.add(f"const int64_t begin = block % {self.parts} * share;")
        body = self._begin(unit)
        self._sweep(unit, body, part)
        self._finish(unit, f"{size_text(self.rows)} * {self.parts}")

    def _sweep(self, unit: Unit, body: Body, part: Pass) -> None:
        """The piece [begin, begin + share) of the row, counted from the first aligned element."""
        layout, reducing = self.layout, Reducing(self.nest, part, joint=True)
        layout.index = "int64_t"
        layout.at, layout.limit = "{}", "end"
        shift = shift_text(unit, self.nest, layout)
        unit.add(f"const int64_t R = {unit.size(self.size)};")
        last = f"block % {self.parts} == {self.parts - 1} ? R : ka_min(R, begin + share{shift})"
        unit.add(f"const int64_t end = {last};")
        unit.add(f"const int64_t first = begin + threadIdx.x * {self.vec}{shift};")
        reducing.declare(unit)
        sweep(body, part, reducing, layout, self.block * self.vec, self.schedule["unroll"], [], True, self.block)
        reducing.finish(body, self.block, 1)
        if part.reduces:
            self._leave(unit, reducing)
            self.done.append(reducing)

    def _leave(self, unit: Unit, reducing: Reducing) -> None:
        unit.open("if (threadIdx.x == 0)")
        for name, source, _ in self._slots(reducing):
            unit.add(f"{unit.buffer(name)}[block] = {source};")
        unit.close()
        shape = (size_text(self.rows), str(self.parts))
        self.scratch += [
            BufferSpec(name=name, dtype=SCRATCH[kind], shape=shape) for name, _, kind in self._slots(reducing)
        ]

    def _slots(self, reducing: Reducing) -> list[tuple[str, str, str]]:
        """(scratch buffer, text of the value, C type) of every number that a pass leaves."""
        slots = []
        for reduce in reducing.single:
            number = reducing.number(reduce)
            slots.append((f"part_r{number}", f"all_r{number}", reduce.ctype))
        for kind, x, _, reduce in reducing.pairs:
            number = reducing.number(reduce)
            slots += [(f"part_j{number}_{field}", f"all_j{number}.{field}", x.ctype) for field in FIELDS[kind]]
        return slots

    def _join(self, body: Body, reducing: Reducing) -> None:
        unit, threads = body.unit, self.block
        for reduce in reducing.single:
            number = reducing.number(reduce)
            unit.add(f"{reduce.ctype} r{number} = {identity(reduce)};")
            piece = f"{unit.buffer(f'part_r{number}')}[o * {self.parts} + p]"
            step = STEP[reduce.kind].format(f"r{number}", piece)
            unit.add(f"for (int p = threadIdx.x; p < {self.parts}; p += {threads}) {step}")
            kind = f"ka_reduce<{100 + number}, {threads}, 1, {OPERATOR[reduce.kind]}>"
            unit.add(f"const {reduce.ctype} past_r{number} = {kind}(r{number}, ({reduce.ctype}){identity(reduce)});")
        for kind, x, _, reduce in reducing.pairs:
            number = reducing.number(reduce)
            state, operator = f"{JOINT[kind][1]}<{x.ctype}>", JOINT[kind][2]
            unit.add(f"{state} j{number} = {state}::none();")
            buffers = ", ".join(
                f"{unit.buffer(f'part_j{number}_{field}')}[o * {self.parts} + p]" for field in FIELDS[kind]
            )
            join = f"j{number} = {operator}::join(j{number}, {state}{{{buffers}}});"
            unit.add(f"for (int p = threadIdx.x; p < {self.parts}; p += {threads}) {join}")
            call = f"ka_reduce<{100 + number}, {threads}, 1, {operator}>(j{number}, {state}::none())"
            unit.add(f"const {state} past_j{number} = {call};")
        reducing.take(body, "past_")

    def launch_end(self) -> None:
        """Outputs that do not vary along R."""
        unit = Unit(self.nest.prefix + "rows_end", "cuda")
        unit.add_if_used("o", "const int64_t o = blockIdx.x;")
        body = self._begin(unit)
        write_scope(body, self.plan.scope)
        store_scope(body, self.plan.stores, "threadIdx.x == 0")
        self._finish(unit, size_text(self.rows))

    def _finish(self, unit: Unit, blocks: str) -> None:
        unit.finish(bounds=f"__launch_bounds__({self.block}) ")
        self.units.append(unit)
        self.launches.append(unit.launch((blocks, "1", "1"), self.block))


def emit_split_cols(nest: Nest, schedule: Schedule) -> Emitted:
    plan = plan_passes(nest)
    writer = _ColumnParts(nest, schedule, plan)
    for number in range(len(plan.passes)):
        writer.launch_pass(number)
    if plan.stores:
        writer.launch_end()
    return writer.units, writer.launches, tuple(writer.scratch)


class _ColumnParts:
    def __init__(self, nest: Nest, schedule: Schedule, plan: Passes) -> None:
        self.nest, self.schedule, self.plan = nest, schedule, plan
        self.parts, self.threads = schedule["parts"], schedule["tx"] * schedule["ty"]
        self.layout = column_layout(nest, schedule)
        self.columns = Columns(nest, schedule, self.layout, plan)
        self.units: list[Unit] = []
        self.launches: list[Launch] = []
        self.scratch: list[BufferSpec] = []
        self.scope: list[Expr] = []
        self.done: list[Pass] = []

    def _begin(self, unit: Unit, block: str) -> Body:
        begin_columns(unit, self.nest, self.schedule, block)
        body = Body(unit, self.nest)
        for part in self.done:
            self._join(body, part)
        self.columns.scope(body, self.scope)
        return body

    def launch_pass(self, number: int) -> None:
        part = self.plan.passes[number]
        self.scope += part.scope
        unit = Unit(self.nest.prefix + f"cols_part{number}", "cuda")
        body = self._begin(unit, f"(blockIdx.x / {self.parts})")
        unit.add(f"const int64_t share = (R + {self.parts - 1}) / {self.parts};")
        unit.add(f"const int64_t begin = blockIdx.x % {self.parts} * share, end = ka_min(R, begin + share);")
        self.columns.sweep(body, part, "begin", "end")
        for reduce in part.reduces:
            self.columns.finish(body, reduce)
        if part.reduces:
            self._leave(unit, part)
            self.done.append(part)
        self._finish(unit, f"{column_blocks(self.nest, self.schedule)} * {self.parts}")

    def _place(self, part: str) -> str:
        return f"[(o * {self.parts} + {part}) * I + e + k]"

    def _leave(self, unit: Unit, part: Pass) -> None:
        if self.schedule["ty"] > 1:
            unit.open("if (ty == 0)")
        unit.add("#pragma unroll")
        unit.open(f"for (int k = 0; k < {self.schedule['vec']}; ++k)")
        guard = "" if self.layout.full else "if (e + k < I) "
        rows, width = size_text(self.nest.size(self.nest.outer)), size_text(self.nest.size(self.nest.inner))
        for reduce in part.reduces:
            name = f"part_r{self.nest.reduces.index(reduce)}"
            unit.add(f"{guard}{unit.buffer(name)}{self._place(f'blockIdx.x % {self.parts}')} = {name[5:]}[k];")
            self.scratch.append(
                BufferSpec(name=name, dtype=SCRATCH[reduce.ctype], shape=(rows, str(self.parts), width))
            )
        unit.close()
        if self.schedule["ty"] > 1:
            unit.close()

    def _join(self, body: Body, part: Pass) -> None:
        """Every thread joins the parts of its own columns."""
        unit = body.unit
        for reduce in part.reduces:
            number = self.nest.reduces.index(reduce)
            unit.add(f"{reduce.ctype} past_r{number}[{self.schedule['vec']}];")
            unit.add("#pragma unroll")
            unit.open(f"for (int k = 0; k < {self.schedule['vec']}; ++k)")
            unit.add(f"past_r{number}[k] = {identity(reduce)};")
            piece = f"{unit.buffer(f'part_r{number}')}{self._place('p')}"
            guard = "" if self.layout.full else "if (e + k < I) "
            step = STEP[reduce.kind].format(f"past_r{number}[k]", piece)
            unit.add(f"{guard}for (int p = 0; p < {self.parts}; ++p) {step}")
            unit.close()
            body.names[id(reduce)] = f"past_r{number}[k]"

    def launch_end(self) -> None:
        unit = Unit(self.nest.prefix + "cols_end", "cuda")
        body = self._begin(unit, "blockIdx.x")
        self.columns.scope(body, self.plan.scope)
        self.columns.store_outside(body, self.plan)
        self._finish(unit, column_blocks(self.nest, self.schedule))

    def _finish(self, unit: Unit, blocks: str) -> None:
        unit.finish(bounds=f"__launch_bounds__({self.threads}) ")
        self.units.append(unit)
        self.launches.append(unit.launch((blocks, "1", "1"), self.threads))
