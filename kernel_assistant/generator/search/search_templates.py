"""Schedules of parts whose kernel is written as a whole. CUDA."""

from __future__ import annotations

from random import Random

from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.loops.linears import Linears
from kernel_assistant.generator.loops.recurrence import Recurrence
from kernel_assistant.generator.loops.templates import Template
from kernel_assistant.generator.search.search_attention import (
    drawn_attention,
    initial_attention,
    neighbours_attention,
)
from kernel_assistant.generator.search.search_linears import drawn_linears, initial_linears, neighbours_linears
from kernel_assistant.generator.search.search_recurrence import (
    drawn_recurrence,
    initial_recurrence,
    neighbours_recurrence,
)
from kernel_assistant.records import OpGraph
from kernel_assistant.targets.base import DeviceFacts


def initial_template(graph: OpGraph, found: Template, device: DeviceFacts) -> list[Schedule]:
    """Schedules that can be launched, the most promising first. Raises Unsupported."""
    if isinstance(found, Recurrence):
        return initial_recurrence(graph, found, device)
    if isinstance(found, Linears):
        return initial_linears(found, device)
    return initial_attention(graph, found, device)


def neighbours_template(
    graph: OpGraph, found: Template, schedule: Schedule, device: DeviceFacts, leave: frozenset[str]
) -> list[Schedule]:
    """The possible schedules that differ in one parameter, but for those in `leave`."""
    if isinstance(found, Recurrence):
        return neighbours_recurrence(graph, found, schedule, device, leave)
    if isinstance(found, Linears):
        return neighbours_linears(found, schedule, leave)
    return neighbours_attention(graph, found, schedule, device, leave)


def drawn_template(graph: OpGraph, found: Template, device: DeviceFacts, random: Random, count: int) -> list[Schedule]:
    """At most `count` of the possible schedules by lot. Raises Unsupported if there is none."""
    if isinstance(found, Recurrence):
        return drawn_recurrence(graph, found, device, random, count)
    if isinstance(found, Linears):
        return drawn_linears(found, random, count)
    return drawn_attention(graph, found, device, random, count)
