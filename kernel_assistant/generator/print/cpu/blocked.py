"""Writes CPU kernels for elementwise loop nests whose loads and stores are contiguous along different loops, as in a
transposition. The loops run over square tiles, so that the cache lines of both stay in the L1 cache.
"""

from __future__ import annotations

from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.loops.transposed_access import crossing
from kernel_assistant.generator.print.cpu.common import loads, parallel, stores
from kernel_assistant.generator.print.render import KernelSource, StatementWriter, pointers


def emit_blocked(nest: LoopNest, schedule: Schedule) -> KernelSource:
    axis, tile = crossing(nest).axis, schedule["tile"]
    unit = KernelSource(nest.prefix + "blocked", "cpu")
    rest = [other for other in nest.outer if other is not axis]
    unit.add(f"const int64_t N = {unit.size(nest.size(nest.inner))}, C = {unit.size(axis.size)};")
    unit.add(f"const int64_t across = (N + {tile - 1}) / {tile}, along = (C + {tile - 1}) / {tile};")
    unit.add(f"const int64_t tasks = across * along * {unit.divisor(nest.size(rest))};")
    parallel(unit, f"tasks * {tile * tile}")
    unit.open("for (int64_t task = 0; task < tasks; ++task)")
    unit.add_if_used("o", "const int64_t o = task / (across * along);")
    unit.add(f"const int64_t begin = task % across * {tile}, end = ka_min(N, begin + {tile});")
    unit.add(f"const int64_t above = task / across % along * {tile}, below = ka_min(C, above + {tile});")
    pointers(unit, nest, rest, "o")
    unit.open("for (int64_t c = above; c < below; ++c)")
    unit.add("#pragma omp simd")
    unit.open("for (int64_t i = begin; i < end; ++i)")
    body, loops = StatementWriter(unit, nest), [([axis], "c"), (nest.inner, "i")]
    body.write(nest.program.exprs, loads(unit, nest, *loops))
    stores(body, nest.stores, *loops)
    unit.close()
    unit.close()
    unit.close()
    return unit
