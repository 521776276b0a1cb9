"""Estimates the time of a part (what one kernel or library call of a graph computes). The estimate is rough, but good
enough to choose between ways to cut a graph into parts, and to decide which part to tune first.
"""

from __future__ import annotations

from kernel_assistant.generator.ir.expr import Expr
from kernel_assistant.generator.ir.sizes import parse_size, size_value
from kernel_assistant.generator.loops.nest import LoopNest
from kernel_assistant.generator.loops.passes import nothing, plan_passes
from kernel_assistant.generator.loops.windows_plan import plan_windows
from kernel_assistant.generator.print.cpu.common import costly
from kernel_assistant.generator.print.cuda.common import is_kept
from kernel_assistant.records import OpGraph, TensorSpec
from kernel_assistant.records.graph import DTYPE_BYTES

#: Per target: bytes and simple operations a second, seconds of one launch. Orders of magnitude of an H200 and of a
#: processor with some cores; only their ratios matter.
RATES = {"cuda": (4e12, 2e13, 3e-6), "cpu": (2e10, 2e10, 2e-6)}
#: A function or a division counts as so many simple operations.
COSTLY = 16


def elements(spec: TensorSpec, dims: dict[str, int]) -> int:
    count = 1
    for size in spec.shape:
        count *= int(size_value(parse_size(size), dims))
    return count


def moved_bytes(graph: OpGraph) -> int:
    """Returns the bytes of all inputs and outputs at the base sizes of the free dimensions."""
    specs = [value.spec for value in graph.inputs] + [graph.spec(name) for name in graph.outputs]
    return sum(elements(spec, graph.dims) * DTYPE_BYTES[spec.dtype] for spec in specs)


def part_seconds(graph: OpGraph, nest: LoopNest | None, target: str) -> float:
    """Returns the estimated seconds of a part: the longer of memory traffic and computation, plus one launch. `nest` is
    None for a part that a library or PyTorch computes.
    """
    memory, compute, launch = RATES[target]
    work = 0 if nest is None else _operations(nest, graph.dims)
    return max(moved_bytes(graph) / memory, work / compute) + launch


def least_seconds(graph: OpGraph, target: str) -> float:
    """Returns a lower bound of `part_seconds`, for which the loop nest of the part need not be built."""
    return part_seconds(graph, None, target)


def _operations(nest: LoopNest, dims: dict[str, int]) -> int:
    """Returns the number of scalar operations of a loop nest at the base sizes `dims`. Each expression counts as often
    as the loops around it run; a costly one counts as COSTLY operations."""
    around = size_value(nest.size([*nest.outer, *nest.inner]), dims)
    if nest.family == "window":
        return around * _window_operations(nest)
    along = size_value(nest.size(nest.reduced), dims)
    plan = plan_passes(nest, is_kept if _fits_registers(nest) else nothing)
    inside = sum(_weight(expr) for part in plan.passes for expr in part.body)
    once = sum(_weight(expr) for part in plan.passes for expr in part.scope) + sum(_weight(e) for e in plan.scope)
    return around * (along * inside + once)


def _window_operations(nest: LoopNest) -> int:
    """Returns the number of scalar operations for one output. Work inside a window counts once for each of its
    positions."""
    plan = plan_windows(nest)
    windows = sum(part.count * sum(_weight(expr) for expr in part.body) for part in plan.parts)
    return windows + sum(_weight(expr) for expr in (*plan.steady, *plan.body))


def _weight(expr: Expr) -> int:
    return COSTLY if costly(expr) else 1


def _fits_registers(nest: LoopNest) -> bool:
    """Whether the values that a later pass reads probably fit into registers, so that no pass recomputes them."""
    size = nest.size(nest.reduced)
    most = {"rows": 65536, "cols": 256}.get(nest.family, 0)
    return isinstance(size, int) and size <= most
