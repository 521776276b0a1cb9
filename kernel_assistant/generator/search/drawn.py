"""Draws schedules at random, for training examples. A search begins with good schedules, but a model also has to see
bad ones.

For a kernel of one loop nest, each draw takes one of the forms of the nest's family and one value of each of the form's
parameters, among those that a search would try; all of them are equally likely. A draw is dropped if its values do not
fit the graph, if the kernel would take too long, or if it was drawn before.
"""

from __future__ import annotations

from random import Random

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.schedule import Schedule, in_parts, make
from kernel_assistant.generator.loops.checked import Family, checked_nest
from kernel_assistant.generator.loops.templates import as_template
from kernel_assistant.generator.plan.partition import LibraryUse, SubGraph, cut, is_one_nest
from kernel_assistant.generator.search.ladders import LADDERS, derived
from kernel_assistant.generator.search.search import emitted, initial
from kernel_assistant.generator.search.search_parts import alike, fixed_schedule
from kernel_assistant.generator.search.search_templates import drawn_template
from kernel_assistant.generator.search.workload import LoopShape, measure
from kernel_assistant.records import Candidate, OpGraph
from kernel_assistant.targets.base import DeviceFacts

#: The forms that are drawn for a loop nest, by target and by the nest's family.
_FORMS = {
    "cpu": {
        Family.pointwise: ("pointwise", "pointwise/blocked"),
        Family.rows: ("rows/keep", "rows/again", "rows/split", "rows/across"),
        Family.cols: ("cols/tile", "cols/split", "rows/across"),
        Family.scan: ("scan/rows", "scan/cols", "scan/across"),
        Family.window: ("window",),
    },
    "cuda": {
        Family.pointwise: ("pointwise", "pointwise/transpose"),
        Family.rows: ("rows/warp", "rows/reg", "rows/shared", "rows/stream", "rows/split", "rows/team"),
        Family.cols: ("cols/reg", "cols/stream", "cols/split"),
        Family.scan: ("scan/rows", "scan/split", "scan/thread", "scan/cols"),
        Family.window: ("window/direct", "window/shared", "window/strip"),
    },
}
#: After this many dropped draws in a row, a form is drawn no more. If no draw of any form was kept, the first schedules
#: of a search are taken instead.
PATIENCE = 4
#: On CUDA, a part of a row or column has at least the first number of vectors, and all blocks of a kernel together read
#: at most the second number of partial results. Beyond these limits, a kernel takes seconds.
FEWEST_VECTORS, MOST_PARTIAL = 32, 1 << 28


def drawn(
    graph: OpGraph, target: str, device: DeviceFacts, random: Random, count: int
) -> list[tuple[Schedule, Candidate]]:
    """Returns at most `count` different schedules for the graph, drawn at random, each with the candidate that the
    generator writes for it. If the graph is cut into parts, a schedule combines one drawn schedule of each part; a part
    that a library or PyTorch computes has only one. Raises Unsupported if no schedule fits the graph."""
    if is_one_nest(graph, target):
        return _of_nest(graph, target, device, random, count)
    parts = cut(graph, target)
    # Parts that are alike have the same schedule.
    kinds = [(kind, _of_part(parts.parts[kind[0]], parts.use, target, device, random, count)) for kind in alike(parts)]
    candidates: dict[Schedule, Candidate] = {}
    for number in range(count):
        chosen = {part: some[number % len(some)] for kind, some in kinds for part in kind}
        schedule = in_parts(target, tuple(chosen[part] for part in range(len(parts.parts))))
        if schedule not in candidates:
            candidates[schedule] = emit(graph, schedule)
    return list(candidates.items())


def _of_part(
    part: SubGraph, use: LibraryUse, target: str, device: DeviceFacts, random: Random, count: int
) -> list[Schedule]:
    if part.kind != "kernel":
        return [fixed_schedule(part, target, use)]
    template = as_template(part.graph)
    if template is not None:
        return drawn_template(part.graph, template, device, random, count)
    return [schedule for schedule, _ in _of_nest(part.graph, target, device, random, count)]


def _of_nest(
    graph: OpGraph, target: str, device: DeviceFacts, random: Random, count: int
) -> list[tuple[Schedule, Candidate]]:
    shape = measure(checked_nest(graph, target), graph.dims)
    failed = dict.fromkeys(_FORMS[target][Family(shape.family)], 0)
    candidates: dict[Schedule, Candidate] = {}
    while failed and len(candidates) < count:
        form = random.choice(list(failed))
        ladder = LADDERS[target][form]
        schedule = derived(shape, make(target, form, **{name: random.choice(ladder[name]) for name in ladder}))
        if schedule is not None and (schedule in candidates or _splits_too_far(shape, schedule)):
            schedule = None
        candidate = None if schedule is None else emitted(graph, schedule)
        if schedule is not None and candidate is not None:
            candidates[schedule], failed[form] = candidate, 0
            continue
        failed[form] += 1
        if failed[form] == PATIENCE:
            del failed[form]
    return list(candidates.items()) or [
        (schedule, emit(graph, schedule)) for schedule in initial(graph, target, device)[:count]
    ]


def _splits_too_far(shape: LoopShape, schedule: Schedule) -> bool:
    """Whether a CUDA schedule cuts rows or columns into parts that are too short, or makes the blocks read too many
    partial results (`FEWEST_VECTORS`, `MOST_PARTIAL`). Without `join`, each block reads the partial results of all
    parts of its row. False for a CPU schedule."""
    numbers = dict(schedule.params)
    if schedule.target == "cpu" or "parts" not in numbers:
        return False
    parts = numbers["parts"]
    read = shape.outer * shape.inner * parts * (1 if numbers.get("join") else parts)
    return parts * shape.vec * FEWEST_VECTORS > shape.reduced or read > MOST_PARTIAL
