"""Chooses schedules to try: a first list, best guess first, and the neighbours of a schedule that was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.graph_text import read_graph, write_graph
from kernel_assistant.generator.ir.operators import operator
from kernel_assistant.generator.ir.schedule import Schedule, make
from kernel_assistant.generator.loops.checked import checked_nest
from kernel_assistant.generator.loops.recurrence import recurrent_layers
from kernel_assistant.generator.loops.templates import as_template
from kernel_assistant.generator.plan.channels_last import has_convolutions, has_depthwise
from kernel_assistant.generator.plan.cost import part_seconds
from kernel_assistant.generator.plan.partition import (
    DEPTHWISE_FORMS,
    SPLIT_FORM,
    TF32_FORM,
    LibraryUse,
    Partition,
    cut,
    cut_for,
    is_one_nest,
)
from kernel_assistant.generator.search.ladders import LADDERS, derived
from kernel_assistant.generator.search.search_cpu import initial_cpu
from kernel_assistant.generator.search.search_cuda import initial_cuda
from kernel_assistant.generator.search.search_parts import First, initial_parts, neighbours_parts
from kernel_assistant.generator.search.search_templates import initial_template, neighbours_template
from kernel_assistant.generator.search.tensor_cores import splits_products
from kernel_assistant.generator.search.workload import LoopShape, measure
from kernel_assistant.records import Candidate, Node, OpGraph
from kernel_assistant.records.graph import Operand
from kernel_assistant.targets.base import DeviceFacts

#: From so many joined values on, and up to so many nodes, parts are considered where one nest is possible. They come
#: first if their estimate is so many times smaller.
FEWEST_JOINED, MOST_NODES, CHEAPER = 3, 128, 1.2
#: Channels first are tried in graphs of so many convolutions: of more, channels last is faster for most.
MOST_CONVOLUTIONS = 4
JOINING = ("cat", "stack", "concat", "concatenate")
#: Forms that write every nest of a family, where none of those fits that its sizes ask for.
LAST = {
    "cpu": {"rows": ("rows/again",), "scan": ("scan/rows",)},
    "cuda": {"rows": ("rows/stream",), "scan": ("scan/rows",)},
}


def initial(graph: OpGraph, target: str, device: DeviceFacts, tf32: bool = False) -> list[Schedule]:
    """Returns schedules that fit the graph at its base sizes, a safe default first. With `tf32`, a schedule that
    computes products and convolutions in TF32 precedes the default, if there is one. Raises Unsupported if no schedule
    fits."""
    schedules = list(_initial_text(tuple(write_graph(graph)), target, device))
    if tf32 and any(form.startswith("library") for form in schedules[0].forms()):
        parts = cut(graph, target, use=LibraryUse(split=False, tf32=True))
        lead = initial_parts(parts, target, lambda part, count: _initial_nest(part, target, device, count))[:1]
        return [*(one for one in lead if TF32_FORM in one.forms()), *schedules]
    return schedules


def first_guess(graph: OpGraph, target: str, device: DeviceFacts) -> Schedule:
    """Returns the schedule that a search tries first: the safe default at the head of the list of `initial` (without
    TF32). It is chosen by rules from the graph's sizes and the device, without timing; where possible, the
    other schedules are not computed. Raises Unsupported if no schedule fits."""
    return _initial(graph, target, device, 1)[0]


# A policy asks again at each turn, which takes seconds for a network.
@lru_cache(maxsize=4)
def _initial_text(lines: tuple[str, ...], target: str, device: DeviceFacts) -> tuple[Schedule, ...]:
    return tuple(_initial(read_graph(list(lines)), target, device))


def _initial(graph: OpGraph, target: str, device: DeviceFacts, most: int | None = None) -> list[Schedule]:
    """Returns the first schedules of a graph: at most `most` for each part, without a limit if it is None."""

    def first(part: OpGraph, count: int) -> list[Schedule]:
        return _initial_nest(part, target, device, min(count, most or count))

    if recurrent_layers(graph):
        return _of_recurrent_layers(graph, device, first)
    if not is_one_nest(graph, target):
        return _of_parts(graph, device, first, most)
    parts = _cheaper_parts(graph, target)
    if parts is None:
        return _initial_nest(graph, target, device, most)
    return [*initial_parts(parts, target, first), *_initial_nest(graph, target, device, most)]


def _of_parts(graph: OpGraph, device: DeviceFacts, first: First, most: int | None) -> list[Schedule]:
    """Returns the first schedules of a graph that several kernels and library calls compute: the safe one, then one for
    each other way to use libraries, then further ones; only the safe one if `most` is 1. `first` returns the first
    schedules of one part."""
    target = device.target
    parts = cut(graph, target, use=LibraryUse(split=splits_products(device)))
    defaults = initial_parts(parts, target, first)
    if most == 1:
        return defaults[:1]
    uses = [LibraryUse(split=False)] if SPLIT_FORM in defaults[0].forms() else []
    convolutions = sum(has_convolutions(part.graph) for part in parts.parts if part.kind == "library")
    if 0 < convolutions <= MOST_CONVOLUTIONS:
        uses.append(LibraryUse(split=splits_products(device), channels_last=False))
    if target == "cuda" and has_depthwise(graph):
        uses += [LibraryUse(split=splits_products(device), depthwise=kind) for kind in DEPTHWISE_FORMS]
    others: list[Schedule] = []
    for use in uses:
        with suppress(Unsupported):
            other = cut(graph, target, use=use)
            schedules = initial_parts(other, target, first)[:1] if other.parts != parts.parts else []
            others += [one for one in schedules if cut_for(graph, one) == other]
    safe, *rest = defaults
    return [safe, *others, *rest]


def _of_recurrent_layers(graph: OpGraph, device: DeviceFacts, first: First) -> list[Schedule]:
    """Returns schedules of a graph with recurrent layers (LSTM, GRU, RNN): first with kernels of the generator for the
    layers, then with the layers as PyTorch's calls. `first` returns the first schedules of one part. Raises Unsupported
    if neither is possible."""
    schedules: list[Schedule] = []
    failed: list[Unsupported] = []
    target, use = device.target, LibraryUse(split=splits_products(device))
    for ours in (True, False):
        try:
            schedules += initial_parts(cut(graph, target, ours, use), target, first)
        except Unsupported as error:
            failed.append(error)
    if not schedules:
        raise failed[0]
    return list(dict.fromkeys(schedules))


def _cheaper_parts(graph: OpGraph, target: str) -> Partition | None:
    """Returns the parts of a graph that a single kernel could compute too, if the parts are CHEAPER times faster by
    estimate; else None. That is so if a node such as `cat` joins many values, because a single kernel would compute
    all of them for each element."""
    joined = max((len(items) for items in map(_joined, graph.nodes)), default=0)
    if joined < FEWEST_JOINED or len(graph.nodes) > MOST_NODES:
        return None
    try:
        parts = cut(graph, target)
    except Unsupported:
        return None
    whole = part_seconds(graph, checked_nest(graph, target), target)
    return parts if CHEAPER * sum(part.seconds for part in parts.parts) < whole else None


def _joined(node: Node) -> Sequence[Operand]:
    items = node.args[0] if node.args and operator(node) in JOINING else None
    return items if isinstance(items, list) else ()


def _initial_nest(graph: OpGraph, target: str, device: DeviceFacts, most: int | None = None) -> list[Schedule]:
    template = as_template(graph)
    if template is not None:
        return initial_template(graph, template, device)[:most]
    shape = measure(checked_nest(graph, target), graph.dims)
    schedules = (initial_cpu if target == "cpu" else initial_cuda)(shape, device)
    last = [make(target, form) for form in LAST[target].get(shape.family, ())]
    fitting = list(islice((schedule for schedule in dict.fromkeys(schedules) if fits(graph, schedule)), most))
    fitting = fitting or [schedule for schedule in last if fits(graph, schedule)]
    if not fitting:
        raise Unsupported(f"no schedule fits a {shape.family} nest of these sizes")
    return fitting


def neighbours(
    graph: OpGraph, schedule: Schedule, device: DeviceFacts, leave: frozenset[str] = frozenset()
) -> list[Schedule]:
    """Returns the schedules that `emit` can write and in which one parameter of `schedule` has the next higher or lower
    of the values that a search tries. Parameters whose names are in `leave` are not changed. For a graph of several
    parts, all equal parts change together, also to the first schedules of their own search."""
    return list(around(graph, schedule, device, leave))


def around(
    graph: OpGraph, schedule: Schedule, device: DeviceFacts, leave: frozenset[str] = frozenset()
) -> Iterator[Schedule]:
    """Yields the schedules of `neighbours` one by one, each computed when it is needed."""
    if schedule.form != "parts":
        yield from _neighbours_kernel(graph, schedule, device, leave)
        return
    yield from neighbours_parts(
        cut_for(graph, schedule),
        schedule,
        leave,
        lambda part, most: _initial_nest(part, schedule.target, device, most),
        lambda part, one, names: _neighbours_kernel(part, one, device, names),
    )


def _neighbours_kernel(
    graph: OpGraph, schedule: Schedule, device: DeviceFacts, leave: frozenset[str]
) -> list[Schedule]:
    template = as_template(graph)
    if template is None:
        return _neighbours_nest(graph, schedule, leave)
    return neighbours_template(graph, template, schedule, device, leave)


def _neighbours_nest(graph: OpGraph, schedule: Schedule, leave: frozenset[str]) -> list[Schedule]:
    shape = measure(checked_nest(graph, schedule.target), graph.dims)
    others: list[Schedule] = []
    for name, ladder in LADDERS[schedule.target].get(schedule.form, {}).items():
        if name not in leave:
            others += [
                changed
                for value in _steps(ladder, schedule[name])
                for changed in _changed(shape, schedule, name, value)
            ]
    return [other for other in dict.fromkeys(others) if other != schedule and fits(graph, other)]


def _steps(ladder: tuple[int, ...], value: int) -> list[int]:
    """Returns the next higher and the next lower value in `ladder`, the values of a parameter that a search tries. If
    there is no higher or no lower value, the list has only one or no element."""
    higher = [rung for rung in ladder if rung > value][:1]
    lower = [rung for rung in ladder if rung < value][-1:]
    return higher + lower


def _changed(shape: LoopShape, schedule: Schedule, name: str, value: int) -> list[Schedule]:
    changed = derived(shape, schedule.having(**{name: value}))
    return [changed] if changed is not None else []


def fits(graph: OpGraph, schedule: Schedule) -> bool:
    """Whether `emit` can write the graph with this schedule."""
    return emitted(graph, schedule) is not None


def emitted(graph: OpGraph, schedule: Schedule) -> Candidate | None:
    """Returns the candidate that `emit` writes; None if it cannot write the graph with this schedule."""
    try:
        return emit(graph, schedule)
    except Unsupported:
        return None
