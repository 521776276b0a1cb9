"""Elementwise nests whose loads run across the stores: square tiles, so that both sides stay in the L1 cache."""

from __future__ import annotations

from kernel_assistant.generator.cpu.common import loads, parallel, pointers, stores
from kernel_assistant.generator.crossing import crossing
from kernel_assistant.generator.nest import Nest
from kernel_assistant.generator.render import Body, Unit
from kernel_assistant.generator.schedule import Schedule


def emit_blocked(nest: Nest, schedule: Schedule) -> Unit:
    axis, tile = crossing(nest).axis, schedule["tile"]
    unit = Unit(nest.prefix + "blocked", "cpu")
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
    body, loops = Body(unit, nest), [([axis], "c"), (nest.inner, "i")]
    body.write(nest.program.exprs, loads(unit, nest, *loops))
    stores(body, nest.stores, *loops)
    unit.close()
    unit.close()
    unit.close()
    return unit
