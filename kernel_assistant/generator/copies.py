"""Operands that a library or a scan cannot read where they are: a part of its own writes them in the order that it
wants."""

from __future__ import annotations

from kernel_assistant.generator.channels_last import channels_last
from kernel_assistant.generator.convolutions import CONVOLUTIONS
from kernel_assistant.generator.flow import COPY, FREE, operator
from kernel_assistant.generator.library import library_nodes
from kernel_assistant.generator.products import PRODUCTS
from kernel_assistant.records import Node, OpGraph, TensorSpec

Groups = tuple[tuple[str, ...], ...]


def with_readable_operands(graph: OpGraph, target: str, stay: frozenset[str] = frozenset()) -> tuple[OpGraph, Groups]:
    """The graph with copies before products and convolutions that need them, but those in `stay`, and the library's
    groups in it."""
    groups = library_nodes(graph, target)
    turned = channels_last(graph, {name for group in groups for name in group}, stay) if target == "cuda" else graph
    if turned is not graph:
        graph, groups = turned, library_nodes(turned, target)
    listed = {name for group in groups for name in group}
    calls = {
        node.name
        for node in graph.nodes
        if operator(node) in (*PRODUCTS, *CONVOLUTIONS) and node.name not in listed and target == "cuda"
    }
    if not calls:
        return graph, groups
    copied = with_copies(graph, calls)
    again = library_nodes(copied, target)
    # Copies only where they help.
    helped = calls & {name for group in again for name in group}
    if not helped:
        return graph, groups
    copied = with_copies(graph, helped)
    return copied, library_nodes(copied, target)


def with_copies(graph: OpGraph, calls: set[str]) -> OpGraph:
    """The graph with a copy of each operand of `calls` that is read through views."""
    known = {node.name: node for node in graph.nodes}
    nodes: list[Node] = []
    renamed: dict[str, str] = {}
    for node in graph.nodes:
        if node.name not in calls:
            nodes.append(node)
            continue
        args = list(node.args)
        for place, operand in enumerate(args):
            if isinstance(operand, str) and operand.startswith("%"):
                args[place] = f"%{_copied(operand[1:], known, nodes, renamed)}"
        nodes.append(Node(name=node.name, op=node.op, args=tuple(args), kwargs=node.kwargs, spec=node.spec))
    return OpGraph(dims=graph.dims, inputs=graph.inputs, nodes=tuple(nodes), outputs=graph.outputs)


def _copied(name: str, known: dict[str, Node], nodes: list[Node], renamed: dict[str, str]) -> str:
    """The name under which a copy of the value is read; transposed matrices are copied as they lie and transposed."""
    node = known.get(name)
    if node is None or not _is_free(node, known):
        return name
    if name not in renamed:
        spec = TensorSpec(dtype=node.spec.dtype, shape=node.spec.shape)
        new = f"{name}_{COPY}"
        if _swaps_last(node):
            source = _copied(str(node.args[0])[1:], known, nodes, renamed)
            nodes.append(Node(name=new, op=node.op, args=(f"%{source}", *node.args[1:]), spec=node.spec))
        else:
            nodes.append(Node(name=new, op=COPY, args=(f"%{name}",), spec=spec))
        renamed[name] = new
    return renamed[name]


def _is_free(node: Node, known: dict[str, Node]) -> bool:
    if operator(node) == "getitem":
        source = known.get(str(node.args[0])[1:])
        return source is not None and operator(source) in FREE
    return operator(node) in FREE


def _swaps_last(node: Node) -> bool:
    rank = len(node.spec.shape)
    if operator(node) == "t":
        return rank == 2
    places = {place % rank for place in node.args[1:3] if isinstance(place, int)} if rank else set()
    return operator(node) in ("transpose", "swapaxes") and places == {rank - 1, rank - 2}
