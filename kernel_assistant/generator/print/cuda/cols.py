"""Writes reductions over a dimension that is not the last. Threads along the columns (the inner loop I) read
neighbouring elements; `ty` threads share the rows of the reduced loop R.

Accesses that are contiguous along R go through tiles in shared memory (`transposed.py`).
"""

from __future__ import annotations

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import Expr
from kernel_assistant.generator.ir.labels import variables
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.ir.sizes import size_text
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.loops.passes import Pass, Passes, nothing, plan_passes, read_elsewhere
from kernel_assistant.generator.print.cuda.common import (
    OPERATOR,
    STEP,
    PassReductions,
    identity,
    is_kept,
    many_additions,
)
from kernel_assistant.generator.print.cuda.group import VectorLayout, VectorWriter, make_layout
from kernel_assistant.generator.print.cuda.transposed import TransposedVectorWriter, TransposePlan
from kernel_assistant.generator.print.render import KernelSource, StatementWriter, joined, pointers
from kernel_assistant.records import Launch

#: Mean and variance share a pass, around a value of the column: a column of equal values has exactly that mean.
#: Maximum and exponentials do not: one more exponential each.
JOINT = "m2"


def column_layout(nest: LoopNest, schedule: Schedule) -> VectorLayout:
    layout = make_layout(
        nest, nest.inner, [*nest.outer, *nest.reduced], schedule["vec"], schedule["hint"], shiftable=False
    )
    size = nest.size(nest.inner)
    layout.index, layout.limit, layout.loops = "int64_t", "I", [(nest.reduced, "r")]
    layout.full = isinstance(size, int) and size % (schedule["tx"] * schedule["vec"]) == 0 and not is_flat(schedule)
    return layout


def is_flat(schedule: Schedule) -> bool:
    """Whether the threads of a block that are behind the last column handle the columns of the next position of the
    outer loops, because there are few columns."""
    return dict(schedule.params).get("flat", 0) == 1


def emit_cols(nest: LoopNest, schedule: Schedule) -> tuple[KernelSource, Launch]:
    unit = KernelSource(nest.prefix + "cols", "cuda")
    in_registers = schedule.form == "cols/reg"
    plan = plan_passes(nest, is_kept if in_registers else nothing, joint=JOINT)
    layout = column_layout(nest, schedule)
    begin_columns(unit, nest, schedule, "blockIdx.x")
    body = StatementWriter(unit, nest)
    columns = ColumnWriter(nest, schedule, layout, plan)
    if is_flat(schedule) and (schedule["vec"] > 1 or columns.turning.tiles):
        raise Unsupported("vectors or tiles across the rows of O")
    columns.declare_kept(unit)
    for part in plan.passes:
        columns.scope(body, part.scope)
        columns.sweep(body, part, "0", "R")
        columns.finish(body, part)
    columns.scope(body, plan.scope)
    columns.store_outside(body, plan)
    threads = schedule["tx"] * schedule["ty"]
    unit.finish(bounds=f"__launch_bounds__({threads}) ")
    return unit, unit.launch((column_blocks(nest, schedule), "1", "1"), threads, str(columns.turning.shared))


def column_blocks(nest: LoopNest, schedule: Schedule) -> str:
    width, outer, inner = schedule["tx"] * schedule["vec"], *(size_text(nest.size(a)) for a in (nest.outer, nest.inner))
    if is_flat(schedule):
        return f"cdiv(({outer}) * ({inner}), {width})"
    return f"cdiv({inner}, {width}) * ({outer})"


def begin_columns(unit: KernelSource, nest: LoopNest, schedule: Schedule, block: str) -> None:
    """Writes declarations of this thread's position: o (the position of the outer loops), e (its first column), and ty
    (its number among the threads that share a column). `block` is C text of the index of the block of columns."""
    tx, ty, vec = schedule["tx"], schedule["ty"], schedule["vec"]
    unit.add_if_used("R", f"const int64_t R = {unit.size(nest.size(nest.reduced))};")
    unit.add(f"const int64_t I = {unit.size(nest.size(nest.inner))};")
    if is_flat(schedule):
        unit.add(f"const int64_t t = (int64_t){block} * {tx} + threadIdx.x % {tx};")
        unit.add(f"const bool exists = t < ({unit.size(nest.size(nest.outer))}) * I;")
        unit.add_if_used("o", "const int64_t o = exists ? t / I : 0;")
        unit.add("const int64_t e = exists ? t % I : I;")
    else:
        unit.add(f"const int64_t tiles = (I + {tx * vec - 1}) / {tx * vec};")
        unit.add_if_used("o", f"const int64_t o = {block} / tiles;")
        unit.add(f"const int64_t left = {block} % tiles * {tx * vec};")
        unit.add(f"const int64_t e = left + threadIdx.x % {tx} * {vec};")
    unit.add(f"const int ty = threadIdx.x / {tx};" if ty > 1 else "const int ty = 0;")
    pointers(unit, nest, nest.outer, "o")


class ColumnWriter:
    """Writes the passes (loops over the rows, which are reduced) of a column reduction. Each thread handles a vector of
    columns, and `ty` threads share the rows."""

    def __init__(self, nest: LoopNest, schedule: Schedule, layout: VectorLayout, plan: Passes) -> None:
        self.nest, self.schedule, self.layout, self.plan = nest, schedule, layout, plan
        self.vec, self.tx, self.ty = schedule["vec"], schedule["tx"], schedule["ty"]
        self.items = schedule["items"] if schedule.form == "cols/reg" else 0
        size = nest.size(nest.reduced)
        if self.items and (not isinstance(size, int) or size > self.items * self.ty):
            raise Unsupported(f"{self.items} items are too few for {size_text(size)} rows")
        self.whole = bool(self.items) and size == self.items * self.ty
        self.kept = plan.kept if self.items else []
        self.names = variables("k", self.kept)
        self.rows = (self.items or schedule["unroll"]) * self.ty
        self.turning = TransposePlan(nest, layout, self.rows, self.tx * self.vec, self.tx * self.ty)

    def declare_kept(self, unit: KernelSource) -> None:
        for expr in self.kept:
            unit.add(f"{expr.ctype} {self.names[id(expr)]}[{self.items}][{self.vec}];")

    def scope(self, body: StatementWriter, scope: list[Expr], plan: Passes | None = None) -> None:
        """Writes the computation of values that do not vary along R, once for each column. `plan` has the passes that
        follow in this kernel, by default all passes.
        """
        if not scope:
            return
        unit = body.unit
        names: dict[int, str] = {}
        read = read_elsewhere(self.nest, scope, plan or self.plan)
        for expr in read:
            names[id(expr)] = body.fresh("c", expr)
            unit.add(f"{expr.ctype} {names[id(expr)]}[{self.vec}];")
        unit.add("#pragma unroll")
        unit.open(f"for (int k = 0; k < {self.vec}; ++k)")
        unit.add_if_used("q", "const int64_t q = e + k;")
        if not self.layout.full:
            unit.open("if (q < I)")
        inner = body.inner()
        inner.write(scope, self._column_loads(unit), "s")
        for expr in read:
            unit.add(f"{names[id(expr)]}[k] = {inner.name(expr)};")
            body.names[id(expr)] = f"{names[id(expr)]}[k]"
        if not self.layout.full:
            unit.close()
        unit.close()

    def _column_loads(self, unit: KernelSource) -> dict[int, str]:
        texts = {}
        for access in dict.fromkeys(self.nest.loads.values()):
            position = unit.position(access, self.nest.inner, "q") or "0"
            texts[id(access)] = unit.fetch(access, position)
        return texts

    def sweep(self, body: StatementWriter, part: Pass, begin: str, end: str) -> None:
        """Writes one pass over the rows [begin, end), which are C texts. The arrays r… (j… for pairs of reductions)
        hold this thread's partial results afterwards, one for each of its columns."""
        unit, reducing = body.unit, self.reducing(part)
        for reduce in reducing.single:
            label = reducing.label(reduce)
            unit.add(f"{reduce.ctype} r{label}[{self.vec}];")
            unit.add("#pragma unroll")
            unit.add(f"for (int k = 0; k < {self.vec}; ++k) r{label}[k] = {identity(reduce)};")
        for label in reducing.sums:
            unit.add(f"float total_r{label}[{self.vec}] = {{}}, rest_r{label}[{self.vec}] = {{}};")
        for _, x, _, reduce in reducing.pairs:
            unit.add(f"ka_moments_of<{x.ctype}> j{reducing.label(reduce)}[{self.vec}];")
        turned = bool(self.turning.loads(part) or self.turning.stores(part))
        if self.items:
            self._kept_sweep(body, part, turned)
            return
        if turned:
            self._turned_sweep(body, part, begin, end)
            return
        unroll = self.schedule["unroll"]
        unit.open("")
        unit.add(f"int64_t base = {begin} + ty;")
        # Whole batches have their loads in flight together; the rest goes row by row.
        unit.open(f"for (; base + {(unroll - 1) * self.ty} < {end}; base += {unroll * self.ty})")
        group = VectorWriter(body, self.layout, "[u]")
        group.declare(part.body, f"[{unroll}]")
        self._rows(unit, unroll)
        group.load(part.body)
        unit.close()
        self._rows(unit, unroll)
        self._vector(body, part, "[u]", loading=False)
        unit.close()
        reducing.keep(unit)
        unit.close()
        unit.open(f"for (; base < {end}; base += {self.ty})")
        unit.add("const int64_t r = base;")
        self._vector(body, part, "", loading=True)
        unit.close()
        unit.close()

    def _kept_sweep(self, body: StatementWriter, part: Pass, turned: bool) -> None:
        """Writes a pass over all rows at once, whose values stay in registers. `turned`: some accesses go through tiles
        in shared memory.
        """
        unit = body.unit
        if turned:
            unit.open("")
            self.turning.declare(unit, part)
        if self.turning.loads(part):
            self.turning.bring(unit, part, "0", "R")
        unit.add("#pragma unroll")
        unit.open(f"for (int n = 0; n < {self.items}; ++n)")
        unit.add_if_used("r", f"const int64_t r = n * {self.ty} + ty;")
        if not self.whole:
            unit.open("if (r < R)")
        self._vector(body, part, "", loading=True, row="r")
        if not self.whole:
            unit.close()
        unit.close()
        if self.turning.stores(part):
            self.turning.put_away(unit, part, "0", "R")
        if turned:
            unit.close()

    def _turned_sweep(self, body: StatementWriter, part: Pass, begin: str, end: str) -> None:
        """Writes a pass that handles as many rows at a time as a tile in shared memory holds; all threads of the block
        run every iteration."""
        unit, unroll = body.unit, self.schedule["unroll"]
        unit.open("")
        self.turning.declare(unit, part)
        unit.open(f"for (int64_t base = {begin}; base < {end}; base += {self.rows})")
        if self.turning.loads(part):
            self.turning.bring(unit, part, "base", end)
        group = TransposedVectorWriter(body, self.layout, "[u]", self.turning, "")
        if group.wanted(part.body):
            group.declare(part.body, f"[{unroll}]")
            self._turn(unit, unroll, end)
            group.load(part.body)
            unit.close()
            unit.close()
        self._turn(unit, unroll, end)
        self._vector(body, part, "[u]", loading=False, row=f"u * {self.ty} + ty")
        unit.close()
        unit.close()
        self.reducing(part).keep(unit)
        if self.turning.stores(part):
            self.turning.put_away(unit, part, "base", end)
        unit.add("__syncthreads();")
        unit.close()
        unit.close()

    def _turn(self, unit: KernelSource, unroll: int, end: str) -> None:
        unit.add("#pragma unroll")
        unit.open(f"for (int u = 0; u < {unroll}; ++u)")
        unit.add(f"const int64_t r = base + u * {self.ty} + ty;")
        unit.open(f"if (r < {end})")

    def _rows(self, unit: KernelSource, unroll: int) -> None:
        unit.add("#pragma unroll")
        unit.open(f"for (int u = 0; u < {unroll}; ++u)")
        unit.add_if_used("r", f"const int64_t r = base + u * {self.ty};")

    def _vector(self, body: StatementWriter, part: Pass, slot: str, loading: bool, row: str = "") -> None:
        unit, group = body.unit, TransposedVectorWriter(body, self.layout, slot, self.turning, row)
        if loading:
            group.declare(part.body)
            group.load(part.body)
        group.declare_stores(part.stores)
        inner = group.open()
        computed = {id(expr) for expr in part.body}
        inner.names.update((at, f"{name}[n][k]") for at, name in self.names.items() if at not in computed)
        inner.write(part.body, group.texts())
        for expr in part.kept if self.items else []:
            unit.add(f"{self.names[id(expr)]}[n][k] = {inner.name(expr)};")
        reducing = self.reducing(part)
        for reduce in reducing.single:
            target = f"r{reducing.label(reduce)}[k]"
            unit.add(STEP[reduce.kind].format(target, inner.name(reduce.arg)))
        for _, x, _, reduce in reducing.pairs:
            unit.add(f"j{reducing.label(reduce)}[k].add({inner.name(x)});")
        group.put(inner, part.stores)
        unit.close()
        group.store(part.stores)

    def reducing(self, part: Pass) -> PassReductions:
        many = not self.items and many_additions(self.nest.size(self.nest.reduced), self.ty)
        return PassReductions(self.nest, part, joint=JOINT, many=many)

    def finish(self, body: StatementWriter, part: Pass) -> None:
        """Writes code that combines the results of the threads that share a column, and registers the results in
        `body`."""
        unit, reducing = body.unit, self.reducing(part)
        reducing.fold(unit)
        for reduce in reducing.single:
            label = reducing.label(reduce)
            unit.add(f"{self.joining(reducing.site(reduce), OPERATOR[reduce.kind])}(r{label});")
            unit.add(f"{reduce.ctype} (&all_r{label})[{self.vec}] = r{label};")
        for _, x, _, reduce in reducing.pairs:
            label = reducing.label(reduce)
            unit.add(f"ka_moments<{x.ctype}> all_j{label}[{self.vec}];")
            unit.add("#pragma unroll")
            unit.add(f"for (int k = 0; k < {self.vec}; ++k) all_j{label}[k] = j{label}[k].done();")
            unit.add(f"{self.joining(reducing.site(reduce), 'ka_chan')}(all_j{label});")
        reducing.take(body, "all_", "[k]")

    def joining(self, site: int, operator: str) -> str:
        """Returns C text of the function that combines the results of the threads that share a column with the C++
        functor `operator`. `site` is a number that must differ for each call in a kernel.
        """
        return f"ka_columns_reduce<{site}, {self.tx}, {self.ty}, {self.vec}, {operator}>"

    def store_outside(self, body: StatementWriter, plan: Passes) -> None:
        if not plan.stores:
            return
        unit = body.unit
        if self.ty > 1:
            unit.open("if (ty == 0)")
        unit.add("#pragma unroll")
        unit.open(f"for (int k = 0; k < {self.vec}; ++k)")
        unit.add_if_used("q", "const int64_t q = e + k;")
        guard = "" if self.layout.full else "if (q < I) "
        for access, output in plan.stores:
            position = joined(unit.position(access, self.nest.inner, "q"))
            unit.add(f"{guard}ka_put({access.name}[{position}], {body.name(output.expr)});")
        unit.close()
        if self.ty > 1:
            unit.close()
