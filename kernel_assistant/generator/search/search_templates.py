"""Chooses schedules of parts whose kernel is written from a template: attention, linear layers of few rows, recurrent
layers. CUDA only."""

from __future__ import annotations

from random import Random

from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.loops.attention import ShortAttention
from kernel_assistant.generator.loops.linears import Linears
from kernel_assistant.generator.loops.templates import Template
from kernel_assistant.generator.search.search_attention import possible_attentions
from kernel_assistant.generator.search.search_linears import possible_linears
from kernel_assistant.generator.search.search_recurrence import possible_recurrences
from kernel_assistant.records import OpGraph
from kernel_assistant.targets.base import DeviceFacts

#: First guesses.
MOST = 12
#: Parameters that follow from the others.
FOLLOWS = frozenset(["held"])


def initial_template(graph: OpGraph, template: Template, device: DeviceFacts) -> list[Schedule]:
    """Returns at most MOST schedules whose kernels can be launched, lowest estimated cost first. Raises Unsupported if
    no schedule is possible."""
    chosen = sorted(_possible(graph, template, device), key=lambda pair: pair[0])
    return [schedule for _, schedule in chosen[:MOST]]


def neighbours_template(
    graph: OpGraph, template: Template, schedule: Schedule, device: DeviceFacts, leave: frozenset[str]
) -> list[Schedule]:
    """Returns the schedules whose kernels can be launched and that differ from `schedule` in exactly one parameter,
    which must not be in `leave`."""
    names = [name for name, _ in schedule.params if name not in FOLLOWS]
    around = []
    for _, other in _possible(graph, template, device):
        changed = [name for name in names if other[name] != schedule[name]]
        if len(changed) == 1 and changed[0] not in leave:
            around.append(other)
    return around


def drawn_template(
    graph: OpGraph, template: Template, device: DeviceFacts, random: Random, count: int
) -> list[Schedule]:
    """Returns at most `count` of the schedules whose kernels can be launched, drawn at random. Raises Unsupported if
    there is none."""
    some = [schedule for _, schedule in _possible(graph, template, device)]
    return random.sample(some, min(count, len(some)))


def _possible(graph: OpGraph, template: Template, device: DeviceFacts) -> list[tuple[float, Schedule]]:
    """Returns (estimated cost, schedule) for all schedules whose kernels can be launched. Costs of different kinds of
    templates have different units and are not comparable."""
    if isinstance(template, Linears):
        return possible_linears(template, device)
    if isinstance(template, ShortAttention):
        return possible_attentions(graph, template, device)
    return possible_recurrences(graph, template, device)
