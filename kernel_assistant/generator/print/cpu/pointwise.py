"""Writes elementwise nests for the CPU: each task computes one tile of the inner loop."""

from __future__ import annotations

from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.loops.passes import plan_passes
from kernel_assistant.generator.print.cpu.common import loads, parallel, stores, streamed
from kernel_assistant.generator.print.render import KernelSource, StatementWriter, element, pointers

#: An inner loop shorter than this is joined with the outer ones, at the price of 64-bit divisions for each element: two
#: to twenty times as slow as a row of its own from 4 elements on (one core of an AMD EPYC with AVX-512).
SHORT = 4


def emit_pointwise(nest: LoopNest, schedule: Schedule) -> KernelSource:
    unit = KernelSource(nest.prefix + "pointwise", "cpu")
    size = nest.size(nest.inner)
    flat = isinstance(size, int) and size < SHORT and bool(nest.outer)
    inner = [*nest.outer, *nest.inner] if flat else nest.inner
    outer = [] if flat else nest.outer
    nest.varies.update(id(expr) for expr in nest.program.exprs if flat)
    plan = plan_passes(nest)
    unit.add(f"const int64_t N = {unit.size(nest.size(inner))}, O = {unit.size(nest.size(outer))};")
    unit.add(f"const int64_t tiles = (N + {schedule['tile'] - 1}) / {schedule['tile']};")
    parallel(unit, "O * N")
    unit.open("for (int64_t task = 0; task < O * tiles; ++task)")
    if outer:
        unit.add_if_used("o", "const int64_t o = task / tiles;")
    unit.add_if_used("begin", f"const int64_t begin = task{' % tiles' if outer else ''} * {schedule['tile']};")
    unit.add_if_used("end", f"const int64_t end = ka_min(N, begin + {schedule['tile']});")
    pointers(unit, nest, outer, "o")
    body = StatementWriter(unit, nest)
    for part in plan.passes:
        body.write(part.scope, loads(unit, nest), "s")
        through = streamed(nest, part, inner, schedule["nt"])
        for access in through:
            unit.add(f"alignas(64) {element(access, 'cpu')} tile_{access.name}[{schedule['tile']}];")
        unit.add("#pragma omp simd")
        unit.open("for (int64_t i = begin; i < end; ++i)")
        loop = body.inner()
        loop.write(part.body, loads(unit, nest, (inner, "i")))
        tiles = {access.name: f"tile_{access.name}[i - begin]" for access in through}
        stores(loop, part.stores, (inner, "i"), tiles=tiles)
        unit.close()
        for access in through:
            unit.add(f"ka_stream({access.name} + begin, tile_{access.name}, (end - begin) * sizeof({access.name}[0]));")
        if through:
            unit.add("ka_stream_end();")
    body.write(plan.scope, loads(unit, nest), "s")
    stores(body, plan.stores)
    unit.close()
    return unit
