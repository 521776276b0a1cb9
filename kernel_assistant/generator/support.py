"""Decides whether the generator can write a graph, and which family of kernels (pointwise, rows, cols, scan, window or
parts) computes it."""

from __future__ import annotations

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.loops.checked import Family, checked_nest
from kernel_assistant.generator.plan.partition import cut, is_one_nest
from kernel_assistant.records import OpGraph


def classify(graph: OpGraph, target: str) -> Family | str:
    """Returns the kernel family of the graph: `Family.parts` if it needs more than one loop nest (kernel). Returns a
    one-line reason as a plain str if the generator cannot write the graph for `target` ("cpu" or "cuda").
    """
    try:
        if is_one_nest(graph, target):
            return Family(checked_nest(graph, target).family)
        cut(graph, target)
    except Unsupported as error:
        return str(error)
    return Family.parts


__all__ = ["Family", "checked_nest", "classify"]
