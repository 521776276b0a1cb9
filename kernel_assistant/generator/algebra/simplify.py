"""Rewrites a graph by the rules of this folder, which save arithmetic, until no rule applies."""

from __future__ import annotations

from collections.abc import Callable

from kernel_assistant.generator.algebra.averaged_products import average_of_product
from kernel_assistant.generator.algebra.diagonals import product_with_diagonal
from kernel_assistant.generator.algebra.facts import GraphFacts
from kernel_assistant.generator.algebra.pooled_convolutions import pooling_of_pointwise
from kernel_assistant.generator.algebra.product_sums import sum_of_product
from kernel_assistant.records import Node, OpGraph
from kernel_assistant.records.graph import references

#: A rule takes a node and gives the nodes that replace it, the last under its name; None where it does not apply.
Rule = Callable[[GraphFacts, Node], list[Node] | None]
#: The rules of each target. On a CPU convolutions are PyTorch's, called as the module calls them.
_RULES: tuple[Rule, ...] = (sum_of_product, average_of_product, product_with_diagonal)
RULES: dict[str, tuple[Rule, ...]] = {"cpu": _RULES, "cuda": (*_RULES, pooling_of_pointwise)}


def simplified(graph: OpGraph, target: str) -> OpGraph:
    """Returns `graph` rewritten by the rules of `target` ("cpu" or "cuda") until none applies; the same object if none
    applies at first."""
    while (simpler := _once(graph, target)) is not None:
        graph = simpler
    return graph


def _once(graph: OpGraph, target: str) -> OpGraph | None:
    """Applies one rule, at the first node to which one applies, and returns the new graph; None if none applies."""
    facts = GraphFacts(graph, target)
    for at, node in enumerate(graph.nodes):
        for rule in RULES.get(target, ()):
            written = rule(facts, node)
            if written is not None:
                nodes = (*graph.nodes[:at], *written, *graph.nodes[at + 1 :])
                return _without_unread(graph, nodes)
    return None


def _without_unread(graph: OpGraph, nodes: tuple[Node, ...]) -> OpGraph:
    """Returns the graph with `nodes` in place of its own nodes; nodes that no output depends on are left out."""
    needed, kept = set(graph.outputs), list[Node]()
    for node in reversed(nodes):
        if node.name in needed:
            needed.update(references(node))
            kept.append(node)
    return OpGraph(dims=graph.dims, inputs=graph.inputs, nodes=tuple(reversed(kept)), outputs=graph.outputs)
