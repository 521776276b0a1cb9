"""Finds the values that depend on parameters alone and are worth computing once, in the plan's `prepare`: operands of
libraries, sums, and copies of a fixed size.

The kernels that read other such values compute them at each call, where they cost nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kernel_assistant.generator.ir.operators import COPY, FREE, operator
from kernel_assistant.records import Node, OpGraph
from kernel_assistant.records.graph import references


def constants(graph: OpGraph, groups: Iterable[Collection[str]], stay: Collection[str] = frozenset()) -> frozenset[str]:
    """Returns the names of the nodes to compute once, not at each call. All depend on parameters alone: operands of the
    library calls in `groups` (the node names of each call), sums, copies of a fixed size, the nodes from which these
    are computed, and the nodes computed from them.

    Views are left out, because each part that reads a view computes it itself. Values that the graph returns, and nodes
    in `stay`, which PyTorch computes, are left out, because they are computed at each call.
    """
    given = {value.name for value in graph.inputs if value.kind != "input"}
    grouped = {name for group in groups for name in group}
    each_time = grouped | set(stay) | _returned(graph)
    known: dict[str, Node] = {}
    for node in graph.nodes:
        read = references(node)
        if read and node.name not in each_time and all(name in given or name in known for name in read):
            known[node.name] = node
    wanted = {name for node in graph.nodes if node.name in grouped for name in references(node) if name in known}
    wanted.update(name for name, node in known.items() if operator(node) == "sum" or _is_copy_of_one_size(node))
    _with_operands(wanted, known)
    for node in known.values():
        if any(name in wanted for name in references(node)):
            wanted.add(node.name)
    _with_operands(wanted, known)
    return frozenset(name for name in wanted if operator(known[name]) not in FREE)


def _returned(graph: OpGraph) -> set[str]:
    """Returns the names of the values that the graph returns, and of the values of which it returns views. They are
    written at each call, so no value that is computed once may depend on them."""
    returned = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node.name in returned and operator(node) in FREE:
            returned.update(references(node))
    return returned


def _is_copy_of_one_size(node: Node) -> bool:
    """Whether the node is a copy whose size does not depend on the inputs. Other copies would be needed for
    each size."""
    return operator(node) == COPY and all(size.isdigit() for size in node.spec.shape)


def _with_operands(wanted: set[str], known: dict[str, Node]) -> None:
    """Adds to `wanted` the nodes from which the nodes in it are computed."""
    for name in reversed(known):
        if name in wanted:
            wanted.update(other for other in references(known[name]) if other in known)
