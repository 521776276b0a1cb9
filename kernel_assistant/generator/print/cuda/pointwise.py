"""Writes elementwise nests, in vectors along the inner loop; each thread loads `unroll` vectors before it computes."""

from __future__ import annotations

from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.ir.sizes import size_text
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.loops.passes import plan_passes
from kernel_assistant.generator.print.cuda.common import store_scope, write_scope
from kernel_assistant.generator.print.cuda.group import VectorWriter, make_layout
from kernel_assistant.generator.print.render import KernelSource, StatementWriter, pointers
from kernel_assistant.records import Launch

#: Inner loops shorter than this are joined with the outer ones, element by element.
TINY = 8


def emit_pointwise(nest: LoopNest, schedule: Schedule) -> tuple[KernelSource, Launch]:
    unit = KernelSource(nest.prefix + "pointwise", "cuda")
    block, vec, unroll = schedule["block"], schedule["vec"], schedule["unroll"]
    size = nest.size(nest.inner)
    if isinstance(size, int) and size < TINY and nest.outer:
        nest.varies.update(id(expr) for expr in nest.program.exprs)
        nest.outer, nest.inner = [], [*nest.outer, *nest.inner]
        size = nest.size(nest.inner)
    rows = nest.size(nest.outer)
    plan = plan_passes(nest)
    layout = make_layout(nest, nest.inner, nest.outer, vec, schedule["hint"], shiftable=False)
    layout.index, layout.limit = "int64_t", "N"
    layout.full = layout.even
    per_row = f"(N + {vec - 1}) / {vec}" if vec > 1 else "N"
    unit.add(f"const int64_t N = {unit.size(size)}, per_row = {per_row}, groups = per_row * ({unit.size(rows)});")
    unit.add(f"const int64_t first = (int64_t)blockIdx.x * {block * unroll} + threadIdx.x;")
    part = plan.passes[0] if plan.passes else None
    body = StatementWriter(unit, nest)
    group = VectorWriter(body, layout, "[u]" if unroll > 1 else "")
    if part is not None:
        group.declare(part.body, f"[{unroll}]" if unroll > 1 else "")
        if unroll > 1:
            _open(unit, nest, block, unroll, vec)
            group.load(part.body)
            unit.close()
            unit.close()
    _open(unit, nest, block, unroll, vec)
    if part is not None:
        if unroll == 1:
            group.load(part.body)
        write_scope(body, part.scope)
        group.load_steady(part.body)
        group.declare_stores(part.stores)
        inner = group.open()
        inner.write(part.body, group.texts())
        group.put(inner, part.stores)
        unit.close()
        group.store(part.stores)
    write_scope(body, plan.scope)
    store_scope(body, plan.stores, "e == 0" if nest.inner else "")
    unit.close()
    if unroll > 1:
        unit.close()
    unit.finish(bounds=f"__launch_bounds__({block}) ")
    total = f"cdiv({size_text(size)}, {vec}) * ({size_text(rows)})"
    return unit, unit.launch((f"cdiv({total}, {block * unroll})", "1", "1"), block)


def _open(unit: KernelSource, nest: LoopNest, block: int, unroll: int, vec: int) -> None:
    """Begins the code for one vector: declares its row, its first element and its pointers."""
    at = "first"
    if unroll > 1:
        unit.add("#pragma unroll")
        unit.open(f"for (int u = 0; u < {unroll}; ++u)")
        at = f"first + u * {block}"
    unit.add(f"const int64_t g = {at};")
    unit.open("if (g < groups)")
    if nest.outer:
        unit.add_if_used("o", "const int64_t o = g / per_row;")
    row = "g % per_row" if nest.outer else "g"
    unit.add_if_used("e", f"const int64_t e = {row} * {vec};" if vec > 1 else f"const int64_t e = {row};")
    pointers(unit, nest, nest.outer, "o")
