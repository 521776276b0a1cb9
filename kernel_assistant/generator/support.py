"""Decides whether the generator can write a graph, and to which family it belongs."""

from __future__ import annotations

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.loops.checked import Family, checked_nest
from kernel_assistant.generator.plan.partition import cut, is_one_nest
from kernel_assistant.records import OpGraph


def classify(graph: OpGraph, target: str) -> Family | str:
    """The family of the graph, `parts` if it needs more than one nest, or a one-line reason why it cannot be written
    for `target`.
    """
    try:
        if is_one_nest(graph, target):
            return Family(checked_nest(graph, target).family)
        cut(graph, target)
    except Unsupported as error:
        return str(error)
    return Family.parts


__all__ = ["Family", "checked_nest", "classify"]
