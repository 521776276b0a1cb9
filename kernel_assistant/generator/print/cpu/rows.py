"""Writes reductions over the last dimensions for the CPU: each task handles one row. All passes read the row, which
stays in cache."""

from __future__ import annotations

from collections.abc import Callable

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import Expr, Reduce, children
from kernel_assistant.generator.ir.labels import variables
from kernel_assistant.generator.ir.named import ceil_div
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.loops.passes import Passes, nothing, plan_passes
from kernel_assistant.generator.print.cpu.common import (
    costly,
    loads,
    parallel,
    reduce_loop,
    row_bytes,
    store_loop,
    stores,
    take_totals,
)
from kernel_assistant.generator.print.cpu.walk import walk_of
from kernel_assistant.generator.print.render import KernelSource, StatementWriter, pointers

#: Most bytes of row buffers on a thread's stack.
STACK = 262144


def emit_rows(nest: LoopNest, schedule: Schedule) -> KernelSource:
    unit = KernelSource(nest.prefix + "rows", "cpu")
    plan = plan_passes(nest, _worth_keeping(nest) if schedule.form == "rows/keep" else nothing)
    walk = walk_of(nest)
    unit.add(f"const int64_t O = {unit.size(nest.size(nest.outer))}, R = {unit.size(nest.size(nest.reduced))};")
    walk.declare(unit, nest)
    parallel(unit, "O * R")
    unit.open("for (int64_t o = 0; o < O; ++o)")
    pointers(unit, nest, nest.outer, "o")
    keep = _buffers(unit, nest, plan)
    body = StatementWriter(unit, nest)
    for part in plan.passes:
        body.write(part.scope, loads(unit, nest), "s")
        if part.reduces:
            reduce_loop(body, part, schedule["lanes"], keep, walk)
            take_totals(body, part)
        else:
            store_loop(body, part, schedule["nt"], keep, walk)
    body.write(plan.scope, loads(unit, nest), "s")
    stores(body, plan.stores)
    unit.close()
    return unit


def _worth_keeping(nest: LoopNest) -> Callable[[Expr], bool]:
    """Returns a `keep` function for `plan_passes`: it is true for values that are costly, or computed from a costly
    one. From such a chain, later passes read only the last value that an earlier pass computes.
    """
    kept: set[int] = set()
    for expr in nest.program.exprs:
        inside = not isinstance(expr, Reduce) and any(id(child) in kept for child in children(expr))
        if inside or costly(expr):
            kept.add(id(expr))
    return lambda expr: id(expr) in kept


def _buffers(unit: KernelSource, nest: LoopNest, plan: Passes) -> dict[int, str]:
    """Declares row buffers on the stack for the values that later passes read again. If a row is too long, the row of a
    float32 output serves as the buffer of a single such value. Returns the buffers' names by the `id` of the
    expression. Raises Unsupported if neither is possible.
    """
    size = nest.size(nest.reduced)
    if not plan.kept:
        return {}
    if isinstance(size, int) and row_bytes(plan.kept) * size <= STACK:
        names = variables("k", plan.kept)
        for expr in plan.kept:
            # Rounded up to whole lanes, so that the compiler sees no write behind the end.
            unit.add(f"alignas(64) {expr.ctype} {names[id(expr)]}[{ceil_div(size, 128) * 128}];")
        return names
    rows = [access for access, _ in nest.stores if access.dtype == "f32" and access.linear(nest.reduced) == 1]
    if len(plan.kept) > 1 or not rows or plan.kept[0].ctype != "float":
        raise Unsupported("a row too long to be kept")
    return {id(plan.kept[0]): rows[0].name}
