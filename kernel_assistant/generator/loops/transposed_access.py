"""For elementwise nests in which loads and stores are contiguous along different loops: finds the loop along which the
loads are contiguous.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import Axis, Expr, Load, children
from kernel_assistant.generator.loops.nest import Access, LoopNest

#: Loops shorter than this leave most of a tile empty.
SHORTEST = 8


@dataclass(frozen=True, slots=True)
class TransposedAccess:
    """`axis` is the loop along which `loads` are contiguous; the stores are contiguous along the inner loop."""

    axis: Axis
    loads: list[Access]


def crossing(nest: LoopNest, guarded: bool = False) -> TransposedAccess:
    """Finds loads that are contiguous along another loop than the stores; with `guarded` also loads under a condition
    that depends on positions alone, such as those of a `cat`. Raises Unsupported if there are none, or if that loop or
    the inner loop has fewer than SHORTEST iterations.
    """
    if len(nest.inner) != 1 or not nest.outer:
        raise Unsupported("a nest of one loop has nothing to transpose")
    inner = nest.inner[0]
    if any(access.index.get(inner, 0) != 1 for access, _ in nest.stores):
        raise Unsupported("stores that are not contiguous")
    for axis in reversed(nest.outer):
        loads = [
            access
            for access in dict.fromkeys(nest.loads.values())
            if access.buffer and not access.terms and access.index.get(axis, 0) == 1
            if access.guard is None or (guarded and _reads_no_memory(access.guard))
            if access.index.get(inner, 0) not in (0, 1)
        ]
        if loads and not any(isinstance(loop.size, int) and loop.size < SHORTEST for loop in (axis, inner)):
            return TransposedAccess(axis, loads)
    raise Unsupported("no load runs across the stores")


def _reads_no_memory(expr: Expr) -> bool:
    """Whether the value is computed from positions and constants alone."""
    if isinstance(expr, Load) and expr.buffer:
        return False
    return all(_reads_no_memory(child) for child in children(expr))
