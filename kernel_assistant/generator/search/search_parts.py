"""Schedules of graphs of several parts. One part is varied at a time, beginning with the one that costs most."""

from __future__ import annotations

from collections.abc import Callable

from kernel_assistant.generator.ir.schedule import Schedule, in_parts, make
from kernel_assistant.generator.plan.partition import Partition, SubGraph
from kernel_assistant.records import OpGraph

First = Callable[[OpGraph], list[Schedule]]
Around = Callable[[OpGraph, Schedule, frozenset[str]], list[Schedule]]
#: Of a part's first list, so many are tried while the others stand still.
FIRST_OF_PART = 8


def initial_parts(found: Partition, target: str, first: First) -> list[Schedule]:
    """The safe schedule of every part, then the rest of the first list of the part that costs most."""
    lists = [_first_of(part, target, first) for part in found.parts]
    safe = in_parts(target, tuple(schedules[0] for schedules in lists))
    number = _by_cost(found)[0]
    return [safe, *(safe.with_part(number, schedule) for schedule in lists[number][1:FIRST_OF_PART])]


def neighbours_parts(
    found: Partition, schedule: Schedule, leave: frozenset[str], first: First, around: Around
) -> list[Schedule]:
    """First lists of all parts, then neighbours of each part's schedule. `leave` has names like `part1.vec`."""
    order = [number for number in _by_cost(found) if found.parts[number].kind == "kernel"]
    changed = [
        schedule.with_part(number, other)
        for number in order
        for other in _first_of(found.parts[number], schedule.target, first)[:FIRST_OF_PART]
    ]
    for number in order:
        start = f"part{number}."
        left = frozenset(name.removeprefix(start) for name in leave if name.startswith(start))
        near = around(found.parts[number].graph, schedule.parts[number], left)
        changed += [schedule.with_part(number, other) for other in near]
    return [other for other in dict.fromkeys(changed) if other != schedule]


def _by_cost(found: Partition) -> list[int]:
    """Numbers of the parts, the most expensive first. Parts that a library or PyTorch computes come last, because they
    have only one schedule.
    """
    return sorted(
        range(len(found.parts)),
        key=lambda number: (found.parts[number].kind != "kernel", -found.parts[number].seconds, number),
    )


def _first_of(part: SubGraph, target: str, first: First) -> list[Schedule]:
    return first(part.graph) if part.kind == "kernel" else [make(target, part.kind)]
