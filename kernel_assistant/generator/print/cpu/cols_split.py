"""Writes reductions over a long dimension R with few columns for the CPU. The rows of R are divided into chunks, one
for each task; partial results are stored in scratch memory and combined in a fixed order.
"""

from __future__ import annotations

from kernel_assistant.generator.ir.expr import Expr, Reduce, children
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.ir.sizes import size_text
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.loops.passes import Pass, below, plan_passes
from kernel_assistant.generator.print.cpu.cols import reduce_rows, scope_loop, store_outside, store_rows
from kernel_assistant.generator.print.cpu.common import STEP, identity, parallel, total_type
from kernel_assistant.generator.print.cpu.split import SCRATCH
from kernel_assistant.generator.print.render import KernelSource, StatementWriter, pointers
from kernel_assistant.records import BufferSpec


def emit_split_cols(nest: LoopNest, schedule: Schedule) -> tuple[KernelSource, tuple[BufferSpec, ...]]:
    writer = _ColumnChunks(nest, schedule)
    plan = plan_passes(nest)
    for part in plan.passes:
        writer.write_pass(part)
    if plan.stores:
        writer.scope += plan.scope
        body = writer.open("O * tiles", "task / tiles", [output.expr for _, output in plan.stores])
        store_outside(body, plan)
        writer.unit.close()
    return writer.unit, tuple(writer.scratch)


class _ColumnChunks:
    def __init__(self, nest: LoopNest, schedule: Schedule) -> None:
        self.nest, self.tile, self.chunk, self.nt = nest, schedule["tile"], schedule["chunk"], schedule["nt"]
        self.unit = unit = KernelSource(nest.prefix + "split_cols", "cpu")
        self.scope: list[Expr] = []
        self.done: list[Reduce] = []
        self.scratch: list[BufferSpec] = []
        sizes = [unit.size(nest.size(axes)) for axes in (nest.outer, nest.reduced, nest.inner)]
        unit.add(f"const int64_t O = {sizes[0]}, R = {sizes[1]}, I = {sizes[2]};")
        unit.add(f"const int64_t tiles = (I + {self.tile - 1}) / {self.tile};")
        unit.add(f"const int64_t chunks = (R + {self.chunk - 1}) / {self.chunk};")

    def open(self, tasks: str, outer: str, targets: list[Expr]) -> StatementWriter:
        """Begins the parallel loop over the tasks, each of which handles a tile of columns. `tasks` is C text of their
        number, `outer` of a task's position along the outer loops. Writes the computation of those values that
        `targets` need and that do not vary along the reduced loop R. Returns the writer of the loop's body.
        """
        unit, nest = self.unit, self.nest
        parallel(unit, "O * R * I")
        unit.open(f"for (int64_t task = 0; task < {tasks}; ++task)")
        unit.add_if_used("o", f"const int64_t o = {outer};")
        unit.add(f"const int64_t begin = task % tiles * {self.tile};")
        unit.add(f"const int n = (int)ka_min(I - begin, (int64_t){self.tile});")
        pointers(unit, nest, nest.outer, "o")
        body = StatementWriter(unit, nest)
        wanted = below(targets)
        for reduce in [one for one in self.done if id(one) in wanted]:
            name = self.nest.result(reduce)
            unit.add(f"{reduce.ctype} {name}[{self.tile}];")
            total = f"{unit.buffer(f'total_{name}')}[o * I + begin + j]"
            unit.add(f"for (int j = 0; j < n; ++j) {name}[j] = ({reduce.ctype}){total};")
            body.names[id(reduce)] = f"{name}[j]"
        scope = [expr for expr in self.scope if id(expr) in wanted]
        inside = {id(expr) for expr in scope}
        read = {id(target) for target in targets}
        for expr in nest.program.exprs:
            if id(expr) in wanted and id(expr) not in inside:
                read.update(id(child) for child in children(expr))
        scope_loop(body, scope, self.tile, [expr for expr in scope if id(expr) in read])
        return body

    def write_pass(self, part: Pass) -> None:
        unit = self.unit
        self.scope += part.scope
        targets = [*(reduce.arg for reduce in part.reduces), *(output.expr for _, output in part.stores)]
        body = self.open("O * chunks * tiles", "task / tiles / chunks", targets)
        unit.add(f"const int64_t first = task / tiles % chunks * {self.chunk}, last = ka_min(R, first + {self.chunk});")
        if part.reduces:
            reduce_rows(body, part, self.tile, "first", "last")
        else:
            store_rows(body, part, self.tile, self.nt, "first", "last")
        for reduce in part.reduces:
            name = self.nest.result(reduce)
            slot = f"{unit.buffer(f'part_{name}')}[task / tiles * I + begin + j]"
            unit.add(f"for (int j = 0; j < n; ++j) {slot} = total_{name}[j];")
        unit.close()
        for reduce in part.reduces:
            self._combine(reduce)
        self.done += part.reduces

    def _combine(self, reduce: Reduce) -> None:
        unit, nest, name, kind = self.unit, self.nest, self.nest.result(reduce), total_type(reduce)
        unit.open("for (int64_t task = 0; task < O * I; ++task)")
        unit.add(f"{kind} total = {identity(reduce)};")
        piece = f"{unit.buffer(f'part_{name}')}[(task / I * chunks + c) * I + task % I]"
        unit.add(f"for (int64_t c = 0; c < chunks; ++c) {STEP[reduce.kind].format('total', piece)}")
        unit.add(f"{unit.buffer(f'total_{name}')}[task] = total;")
        unit.close()
        rows, length, columns = (size_text(nest.size(axes)) for axes in (nest.outer, nest.reduced, nest.inner))
        shape = (rows, f"cdiv({length}, {self.chunk})", columns)
        self.scratch += [
            BufferSpec(name=f"part_{name}", dtype=SCRATCH[kind], shape=shape),
            BufferSpec(name=f"total_{name}", dtype=SCRATCH[kind], shape=(rows, columns)),
        ]
