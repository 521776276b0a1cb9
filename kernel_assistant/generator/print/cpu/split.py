"""Writes reductions of few long rows for the CPU. A row is divided into chunks, one for each task; partial results are
stored in scratch memory."""

from __future__ import annotations

from kernel_assistant.generator.ir.expr import Expr, Reduce
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.ir.sizes import size_text
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.loops.passes import plan_passes
from kernel_assistant.generator.print.cpu.common import (
    STEP,
    identity,
    loads,
    parallel,
    reduce_loop,
    store_loop,
    stores,
    total_type,
)
from kernel_assistant.generator.print.cpu.walk import walk_of
from kernel_assistant.generator.print.render import KernelSource, StatementWriter, pointers
from kernel_assistant.records import BufferSpec

SCRATCH = {"double": "f64", "float": "f32", "int64_t": "i64", "bool": "b1"}


def emit_split(nest: LoopNest, schedule: Schedule) -> tuple[KernelSource, tuple[BufferSpec, ...]]:
    unit = KernelSource(nest.prefix + "split_rows", "cpu")
    plan = plan_passes(nest)
    chunk, rows, width = schedule["chunk"], nest.size(nest.outer), nest.size(nest.reduced)
    unit.add(f"const int64_t O = {unit.size(rows)}, R = {unit.size(width)};")
    walk = walk_of(nest, some=True)
    walk.declare(unit, nest)
    unit.add(f"const int64_t chunks = (R + {chunk - 1}) / {chunk};")
    scratch: list[BufferSpec] = []
    scope: list[Expr] = []
    done: list[Reduce] = []
    for part in plan.passes:
        scope += part.scope
        parallel(unit, "O * R")
        unit.open("for (int64_t task = 0; task < O * chunks; ++task)")
        unit.add_if_used("o", "const int64_t o = task / chunks;")
        unit.add(f"const int64_t begin = task % chunks * {chunk};")
        unit.add(f"const int64_t end = ka_min(R, begin + {chunk});")
        pointers(unit, nest, nest.outer, "o")
        body = _with_totals(unit, nest, done)
        body.write(scope, loads(unit, nest), "s")
        if part.reduces:
            reduce_loop(body, part, schedule["lanes"], {}, walk)
            for reduce in part.reduces:
                name = nest.result(reduce)
                unit.add(f"{unit.buffer(f'part_{name}')}[task] = total_{name};")
        else:
            store_loop(body, part, schedule["nt"], {}, walk)
        unit.close()
        for reduce in part.reduces:
            scratch += _combine(unit, nest, reduce, size_text(rows), f"cdiv({size_text(width)}, {chunk})")
        done += part.reduces
    if plan.stores:
        unit.open("for (int64_t o = 0; o < O; ++o)")
        pointers(unit, nest, nest.outer, "o")
        body = _with_totals(unit, nest, done)
        body.write(scope + plan.scope, loads(unit, nest), "s")
        stores(body, plan.stores)
        unit.close()
    return unit, tuple(scratch)


def _with_totals(unit: KernelSource, nest: LoopNest, done: list[Reduce]) -> StatementWriter:
    body = StatementWriter(unit, nest)
    for reduce in done:
        name = nest.result(reduce)
        unit.add_if_used(name, f"const {reduce.ctype} {name} = ({reduce.ctype}){unit.buffer(f'total_{name}')}[o];")
        body.names[id(reduce)] = name
    return body


def _combine(unit: KernelSource, nest: LoopNest, reduce: Reduce, rows: str, chunks: str) -> list[BufferSpec]:
    """Writes the loop that combines the chunks of each row in a fixed order, so that the result does not depend on the
    number of threads. Returns the scratch buffers.
    """
    name, kind = nest.result(reduce), total_type(reduce)
    unit.open("for (int64_t o = 0; o < O; ++o)")
    unit.add(f"{kind} total = {identity(reduce)};")
    piece = f"{unit.buffer(f'part_{name}')}[o * chunks + c]"
    unit.add(f"for (int64_t c = 0; c < chunks; ++c) {STEP[reduce.kind].format('total', piece)}")
    unit.add(f"{unit.buffer(f'total_{name}')}[o] = total;")
    unit.close()
    return [
        BufferSpec(name=f"part_{name}", dtype=SCRATCH[kind], shape=(rows, chunks)),
        BufferSpec(name=f"total_{name}", dtype=SCRATCH[kind], shape=(rows,)),
    ]
