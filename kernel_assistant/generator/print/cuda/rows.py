"""Writes reductions over the last dimensions. A row is handled by a warp or part of one, a block, or a cluster; it is
kept in registers or in shared memory, or read again from the L2 cache.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.labels import variables
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.ir.sizes import size_text
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.loops.passes import Pass, Passes, nothing, plan_passes
from kernel_assistant.generator.print.cuda.common import (
    PassReductions,
    is_kept,
    many_additions,
    store_scope,
    write_scope,
)
from kernel_assistant.generator.print.cuda.group import VectorLayout, VectorWriter, index_type, make_layout
from kernel_assistant.generator.print.cuda.sweeps import Sweep, plan_copies
from kernel_assistant.generator.print.render import KernelSource, StatementWriter, joined, pointers
from kernel_assistant.records import Launch


@dataclass(slots=True)
class RowMapping:
    """How one row is divided among threads: `group` threads in each of `cluster` blocks. One sweep is `step` elements,
    with one vector for each thread.
    """

    schedule: Schedule
    layout: VectorLayout
    group: int
    cluster: int
    vec: int

    @property
    def step(self) -> int:
        return self.group * self.cluster * self.vec

    @property
    def warp(self) -> bool:
        return self.schedule.form == "rows/warp"

    def sweeps(self, size: int) -> int:
        """Returns the number of sweeps for a row of `size` elements, including those by which the first vector may
        begin before it."""
        slack = self.vec - 1 if self.layout.shift is not None else 0
        return -(-(size + slack) // self.step)


def emit_rows(nest: LoopNest, schedule: Schedule) -> tuple[KernelSource, Launch]:
    unit = KernelSource(nest.prefix + "rows", "cuda")
    form, block, cluster = schedule.form, schedule["block"], dict(schedule.params).get("cluster", 1)
    layout = make_layout(nest, nest.reduced, nest.outer, schedule["vec"], schedule["hint"], shiftable=True)
    group = schedule["lanes"] if form == "rows/warp" else block
    row = RowMapping(schedule, layout, group, cluster, schedule["vec"])
    size, rows = nest.size(nest.reduced), nest.size(nest.outer)
    layout.index = index_type(size)
    joint = form == "rows/stream" or bool(dict(schedule.params).get("joint"))
    plan = plan_passes(nest, is_kept if form in ("rows/reg", "rows/warp") else nothing, joint)
    writer = _Registers(nest, plan, row) if form in ("rows/reg", "rows/warp") else _Sweeps(nest, plan, row, joint)
    per_block = block // group if row.warp else 1
    _begin(unit, nest, row, per_block)
    shared = writer.write(unit)
    if cluster > 1:
        unit.add("ka_cluster_barrier();")
    attributes = f"__launch_bounds__({block}) " + (f"__cluster_dims__({cluster}, 1, 1) " if cluster > 1 else "")
    unit.finish(bounds=attributes)
    blocks = f"cdiv({size_text(rows)}, {per_block})" if per_block > 1 else f"{size_text(rows)} * {cluster}"
    return unit, unit.launch((blocks, "1", "1"), block, shared)


def _begin(unit: KernelSource, nest: LoopNest, row: RowMapping, per_block: int) -> None:
    layout = row.layout
    unit.add_if_used("R", f"const {layout.index} R = {unit.size(nest.size(nest.reduced))};")
    if row.warp:
        unit.add(f"const int64_t o = (int64_t)blockIdx.x * {per_block} + threadIdx.x / {row.group};")
        unit.add(f"if (o >= {unit.size(nest.size(nest.outer))}) return;")
        unit.add(f"const int thread = threadIdx.x % {row.group};")
    elif row.cluster > 1:
        unit.add_if_used("o", f"const int64_t o = blockIdx.x / {row.cluster};")
        unit.add(f"const int thread = blockIdx.x % {row.cluster} * {row.group} + threadIdx.x;")
    else:
        unit.add_if_used("o", "const int64_t o = blockIdx.x;")
        unit.add("const int thread = threadIdx.x;")
    pointers(unit, nest, nest.outer, "o")
    unit.add(f"const {layout.index} first = thread * {row.vec}{shift_text(unit, nest, layout)};")


def shift_text(unit: KernelSource, nest: LoopNest, layout: VectorLayout) -> str:
    """Returns C text " - …" that subtracts the number of elements by which the first vector begins before the row, so
    that vectors are aligned in memory; "" if rows begin aligned.
    """
    if layout.shift is None:
        return ""
    access = layout.shift
    position = joined(unit.size(access.offset) if access.offset != 0 else "", unit.position(access, nest.outer, "o"))
    return f" - (int)(({position}) & {layout.vec - 1})"


class _Registers:
    """Writes kernels that keep in registers every value that a later pass needs; the loops over the row are
    unrolled."""

    def __init__(self, nest: LoopNest, plan: Passes, row: RowMapping) -> None:
        size = nest.size(nest.reduced)
        if not isinstance(size, int):
            raise Unsupported("rows of free size in registers")
        self.items = row.schedule["items"]
        if self.items * row.step < size + (row.vec - 1 if row.layout.shift is not None else 0):
            raise Unsupported(f"{self.items} items are too few for rows of {size}")
        row.layout.full = row.layout.shift is None and size == self.items * row.step
        self.nest, self.plan, self.row = nest, plan, row
        self.names = variables("k", plan.kept)

    def write(self, unit: KernelSource) -> str:
        for expr in self.plan.kept:
            unit.add(f"{expr.ctype} {self.names[id(expr)]}[{self.items}][{self.row.vec}];")
        body = StatementWriter(unit, self.nest)
        for number, part in enumerate(self.plan.passes):
            write_scope(body, part.scope)
            self._pass(body, part, first=number == 0)
        write_scope(body, self.plan.scope)
        store_scope(body, self.plan.stores, "thread == 0")
        return "0"

    def _pass(self, body: StatementWriter, part: Pass, first: bool) -> None:
        unit, row = body.unit, self.row
        reducing = PassReductions(self.nest, part, joint=False)
        reducing.declare(unit)
        # The first pass has all its loads in flight before it looks at one.
        group = VectorWriter(body, row.layout, "[n]" if first else "")
        if first:
            group.declare(part.body, f"[{self.items}]")
            self._sweep(unit)
            group.load(part.body)
            unit.close()
        self._sweep(unit)
        if not first:
            group.declare(part.body)
            group.load(part.body)
        group.declare_stores(part.stores)
        inner = group.open()
        computed = {id(expr) for expr in part.body}
        inner.names.update((at, f"{name}[n][k]") for at, name in self.names.items() if at not in computed)
        inner.write(part.body, group.texts())
        for expr in part.kept:
            unit.add(f"{self.names[id(expr)]}[n][k] = {inner.name(expr)};")
        reducing.element(unit, inner, row.layout.inside())
        group.put(inner, part.stores)
        unit.close()
        group.store(part.stores)
        unit.close()
        reducing.finish(body, row.group, row.cluster)

    def _sweep(self, unit: KernelSource) -> None:
        unit.add("#pragma unroll")
        unit.open(f"for (int n = 0; n < {self.items}; ++n)")
        unit.add_if_used("e", f"const {self.row.layout.index} e = first + n * {self.row.step};")


class _Sweeps:
    """Writes kernels that loop over the row once for each pass: they read it from memory, or from the copy in shared
    memory that the first pass made.
    """

    def __init__(self, nest: LoopNest, plan: Passes, row: RowMapping, joint: bool) -> None:
        self.nest, self.plan, self.row, self.joint = nest, plan, row, joint
        unroll = row.schedule["unroll"]
        size = nest.size(nest.reduced)
        whole = isinstance(size, int) and size % (row.step * unroll) == 0
        row.layout.full = whole and row.layout.shift is None
        self.many = many_additions(size, row.group * row.cluster)
        self.sweep = Sweep(row.layout, row.group, row.step, unroll)
        if row.schedule.form == "rows/shared":
            if not isinstance(size, int):
                raise Unsupported("rows of free size in shared memory")
            sweeps = -(-row.sweeps(size) // unroll) * unroll
            elements = sweeps * row.group * row.vec
            self.sweep.copies = plan_copies(nest, plan, elements, bool(row.schedule["stage"]))

    def write(self, unit: KernelSource) -> str:
        copies = self.sweep.copies
        self.sweep.declare(unit)
        body = StatementWriter(unit, self.nest)
        for number, part in enumerate(self.plan.passes):
            write_scope(body, part.scope)
            reducing = PassReductions(self.nest, part, self.joint, self.many)
            reducing.declare(unit)
            self.sweep.write(body, part, reducing, first=number == 0)
            reducing.finish(body, self.row.group, self.row.cluster)
        write_scope(body, self.plan.scope)
        store_scope(body, self.plan.stores, "thread == 0")
        return str(copies.shared)
