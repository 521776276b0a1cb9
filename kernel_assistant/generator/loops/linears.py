"""Defines the node of linear layers that read the same few rows, and finds it in a part of a graph (one kernel's
share). CUDA only.

See docs/language_models.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.operators import operator
from kernel_assistant.generator.loops.strided import VIEWS, Resolver, View
from kernel_assistant.records import OpGraph
from kernel_assistant.records.graph import references

#: (x, weights, biases): x [..., K], weights a list of [N, K], biases a list of [N] or None. Results: x · Wᵀ + bias for
#: each.
LINEARS = "ka_linears"


@dataclass(frozen=True, slots=True)
class Linears:
    """The `ka_linears` node of a part (one kernel's share of a graph). `x`, `weights` and `biases` are views of the
    part's inputs; `outputs` has the index of each layer's result among the part's outputs."""

    x: View
    weights: tuple[View, ...]
    biases: tuple[View | None, ...]
    outputs: tuple[int, ...]


def as_linears(graph: OpGraph) -> Linears | None:
    """Returns the linear layers that `graph`, one kernel's share of a graph, computes. Returns None if it computes
    anything else, or if the layers' kernel could not read an operand without a copy."""
    heads = [node for node in graph.nodes if node.op == LINEARS]
    if len(heads) != 1:
        return None
    head, values = heads[0], Resolver(graph)
    taken = [node for node in graph.nodes if node.op == "getitem" and references(node) == [head.name]]
    others = [node for node in graph.nodes if node is not head and node not in taken]
    weights, biases = head.args[1:3]
    assert isinstance(weights, list) and isinstance(biases, list)
    numbered = {int(str(node.args[1])): node.name for node in taken}
    if any(operator(node) not in VIEWS for node in others) or set(graph.outputs) != set(numbered.values()):
        return None
    if sorted(numbered) != list(range(len(weights))):
        return None
    try:
        x, *read = (values.view(one) for one in (head.args[0], *weights))
        added = tuple(None if one is None else values.view(one) for one in biases)
    except Unsupported:
        return None
    if any(view is not None and not view.is_contiguous for view in added) or any(one.strides[1] != 1 for one in read):
        return None
    if any(view.root not in values.given for view in (x, *read, *filter(None, added))) or not x.is_contiguous:
        return None
    outputs = tuple(graph.outputs.index(numbered[number]) for number in range(len(weights)))
    return Linears(x, tuple(read), added, outputs)
