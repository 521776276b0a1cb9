"""Elementwise nests whose loads run across the stores: which loop would have to be the inner one for the loads."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.generator.errors import Unsupported
from kernel_assistant.generator.expr import Axis
from kernel_assistant.generator.nest import Access, Nest

#: Loops shorter than this leave most of a tile empty.
SHORTEST = 8


@dataclass(frozen=True, slots=True)
class Crossing:
    """`axis` is the loop along which `loads` are contiguous; the stores are along the inner loop."""

    axis: Axis
    loads: list[Access]


def crossing(nest: Nest) -> Crossing:
    """Raises Unsupported where no load runs across the stores."""
    if len(nest.inner) != 1 or not nest.outer:
        raise Unsupported("a nest of one loop has nothing to transpose")
    inner = nest.inner[0]
    if any(access.index.get(inner, 0) != 1 for access, _ in nest.stores):
        raise Unsupported("stores that are not contiguous")
    for axis in reversed(nest.outer):
        loads = [
            access
            for access in dict.fromkeys(nest.loads.values())
            if access.buffer and not access.computed and access.index.get(axis, 0) == 1
            if access.index.get(inner, 0) not in (0, 1)
        ]
        if loads and not any(isinstance(loop.size, int) and loop.size < SHORTEST for loop in (axis, inner)):
            return Crossing(axis, loads)
    raise Unsupported("no load runs across the stores")
