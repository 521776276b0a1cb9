"""Reads graph and schedule from a candidate that `emit` wrote; the inverse of `emit`."""

from __future__ import annotations

from itertools import takewhile

from kernel_assistant.generator.emit import GRAPH_MARK, SCHEDULE_MARK, SOURCE, emit
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.graph_text import read_graph
from kernel_assistant.generator.ir.schedule import Schedule, read_schedule
from kernel_assistant.records import Candidate, OpGraph


def parse(candidate: Candidate) -> tuple[OpGraph, Schedule] | None:
    """Returns the graph and the schedule that `emit` noted in the first comments of a candidate's source. Returns None
    unless `emit` would write exactly this plan and these sources from them."""
    target = candidate.plan.target
    source = candidate.sources.get(SOURCE[target], "")
    marked = list(takewhile(lambda line: line.startswith("//"), source.split("\n")))
    graph_lines = [line.removeprefix(GRAPH_MARK) for line in marked if line.startswith(GRAPH_MARK)]
    schedule_lines = [line.removeprefix(SCHEDULE_MARK) for line in marked if line.startswith(SCHEDULE_MARK)]
    if len(schedule_lines) != 1:
        return None
    try:
        graph, schedule = read_graph(graph_lines), read_schedule(target, schedule_lines[0])
        again = emit(graph, schedule)
    except (Unsupported, ValueError, KeyError):
        return None
    same = again.plan == candidate.plan and again.sources == candidate.sources
    return (graph, schedule) if same else None
