"""Chooses schedules of graphs of several parts (what one kernel or library call computes). Only the parts of one kind
are varied at a time, beginning with the kind that takes most time.

Parts that compute the same on tensors of the same layout, such as the layers of a network, are of one kind and have the
same schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kernel_assistant.generator.ir.schedule import Schedule, in_parts, make
from kernel_assistant.generator.plan.channels_last import has_convolutions
from kernel_assistant.generator.plan.partition import (
    DEPTHWISE_FORMS,
    FIRST_FORM,
    SPLIT_FORM,
    TF32_FORM,
    LibraryUse,
    Partition,
    SubGraph,
    named_in_order,
)
from kernel_assistant.generator.plan.split_products import has_split_products, has_tf32
from kernel_assistant.records import OpGraph

#: The first schedules of a part, at most so many.
First = Callable[[OpGraph, int], list[Schedule]]
Around = Callable[[OpGraph, Schedule, frozenset[str]], list[Schedule]]
#: Of a part's first list, so many are tried while the others stand still.
FIRST_OF_PART = 8


def initial_parts(partition: Partition, target: str, first: First) -> list[Schedule]:
    """Returns schedules for all parts together. In the first one, each part has its safe schedule, the first that
    `first(graph, count)` returns for it; in the others, all parts of the kind that takes most time (see `alike`) have
    another schedule that `first` returns.
    """
    kinds = alike(partition)
    dearest = _first_of(partition.parts[kinds[0][0]], target, first, FIRST_OF_PART, partition.use)
    lists = [dearest, *(_first_of(partition.parts[kind[0]], target, first, 1, partition.use) for kind in kinds[1:])]
    chosen = {number: schedules[0] for kind, schedules in zip(kinds, lists, strict=True) for number in kind}
    safe = in_parts(target, tuple(chosen[number] for number in range(len(partition.parts))))
    return [safe, *(_changed(safe, kinds[0], schedule) for schedule in dearest[1:])]


def neighbours_parts(
    partition: Partition, schedule: Schedule, leave: frozenset[str], first: First, around: Around
) -> Iterator[Schedule]:
    """Yields schedules that change one kind of part (see `alike`) at a time: for all kinds, first to the schedules that
    `first` returns for the part, then to those near its current schedule, which `around` returns. Each schedule is
    yielded once.

    `leave` has the names of parameters that are not changed, such as `part1.vec`. Schedules are computed one by one
    when they are needed, because a network has hundreds of parts.
    """
    seen = {schedule}
    for other in _around_parts(partition, schedule, leave, first, around):
        if other not in seen:
            seen.add(other)
            yield other


def _around_parts(
    partition: Partition, schedule: Schedule, leave: frozenset[str], first: First, around: Around
) -> Iterator[Schedule]:
    varied = {number for number, part in enumerate(partition.parts) if part.kind == "kernel" and not part.once}
    kinds = [kind for kind in alike(partition) if kind[0] in varied]
    for kind in kinds:
        for other in _first_of(partition.parts[kind[0]], schedule.target, first, FIRST_OF_PART, partition.use):
            yield _changed(schedule, kind, other)
    for kind in kinds:
        number = kind[0]
        start = f"part{number}."
        left = frozenset(name.removeprefix(start) for name in leave if name.startswith(start))
        for other in around(partition.parts[number].graph, schedule.parts[number], left):
            yield _changed(schedule, kind, other)


def alike(partition: Partition) -> list[list[int]]:
    """Returns the indices of the parts, grouped by kind: parts whose kernels are equal except for names, such as those
    of equal layers. The group that takes most time is first; parts that a library or PyTorch computes come last, each
    alone, because they have only one schedule.
    """
    kinds: dict[object, list[int]] = {}
    for number, part in enumerate(partition.parts):
        key = (named_in_order(part.graph), part.once) if part.kind == "kernel" else number
        kinds.setdefault(key, []).append(number)

    def cost(kind: list[int]) -> tuple[bool, float, int]:
        return (
            partition.parts[kind[0]].kind != "kernel",
            -sum(partition.parts[number].seconds for number in kind),
            kind[0],
        )

    return sorted(kinds.values(), key=cost)


def _changed(schedule: Schedule, numbers: Sequence[int], part: Schedule) -> Schedule:
    """Returns the schedule in which all parts whose numbers are in `numbers` have the schedule `part`."""
    for number in numbers:
        schedule = schedule.with_part(number, part)
    return schedule


def _first_of(part: SubGraph, target: str, first: First, most: int, use: LibraryUse) -> list[Schedule]:
    return first(part.graph, most) if part.kind == "kernel" else [fixed_schedule(part, target, use)]


def fixed_schedule(part: SubGraph, target: str, use: LibraryUse) -> Schedule:
    """Returns the only schedule of a part that a library or PyTorch computes; its form tells `cut_for` the options
    `use` with which the graph was cut."""
    if has_tf32(part.graph):
        return make(target, TF32_FORM)
    if has_split_products(part.graph):
        return make(target, SPLIT_FORM)
    if part.kind != "library" or not has_convolutions(part.graph):
        return make(target, part.kind)
    if use.depthwise:
        return make(target, DEPTHWISE_FORMS[use.depthwise])
    return make(target, part.kind if use.channels_last else FIRST_FORM)
