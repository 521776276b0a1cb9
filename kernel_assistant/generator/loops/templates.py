"""Finds parts of a graph whose kernel is written from a template and not from a loop nest. CUDA only."""

from __future__ import annotations

from kernel_assistant.generator.loops.attention import ShortAttention, as_attention
from kernel_assistant.generator.loops.linears import Linears, as_linears
from kernel_assistant.generator.loops.recurrence import Recurrence, as_recurrence
from kernel_assistant.records import OpGraph

Template = Recurrence | ShortAttention | Linears


def as_template(graph: OpGraph) -> Template | None:
    """Returns the recurrence, attention or linear layers that `graph`, one kernel's share of a graph, computes; None if
    it computes anything else."""
    return as_recurrence(graph) or as_attention(graph) or as_linears(graph)
