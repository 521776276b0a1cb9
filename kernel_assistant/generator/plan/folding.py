"""Folds a batch norm for inference into the weights of the convolution before it.

conv(x, w)·s + t = conv(x, w·s) + t, with a factor for each channel of the result. The new weights depend on parameters
alone, so they are computed once (`constants.py`), and the library adds the new bias.
"""

from __future__ import annotations

from kernel_assistant.generator.ir.operators import PLAIN_CONVOLUTIONS, operator
from kernel_assistant.generator.library.products import argument
from kernel_assistant.generator.lower.node_writer import NodeWriter
from kernel_assistant.generator.lower.numbers import HALVES
from kernel_assistant.records import Node, OpGraph
from kernel_assistant.records.graph import name_of, readers_of, references

#: Place of `eps`, by operator.
_NORMS = {"_native_batch_norm_legit_no_training": 6, "batch_norm": 7}


def with_folded_norms(graph: OpGraph, stay: frozenset[str] = frozenset()) -> OpGraph:
    """Returns the graph in which each batch norm that is the only reader of a convolution's result is folded; the graph
    itself if there is none. Nodes in `stay` are not changed.

    Norms of half types are not folded, because the weights would be rounded once more, and neither are norms after
    depthwise convolutions, which our own kernels compute together with the norm.
    """
    readers = readers_of(graph)
    constant = {value.name for value in graph.inputs if value.kind != "input"}
    folds: dict[str, tuple[Node, Node]] = {}
    for node in graph.nodes:
        fold = _norm_behind(node, graph, readers, constant) if node.name not in stay else None
        if fold is not None and fold[0].name not in stay:
            folds[node.name] = fold
    if not folds:
        return graph
    gone = {node.name for norm, last in folds.values() for node in (norm, last)}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.name in folds:
            nodes += _folded(graph, node, *folds[node.name])
        elif node.name not in gone:
            nodes.append(node)
    return OpGraph(dims=graph.dims, inputs=graph.inputs, nodes=tuple(nodes), outputs=graph.outputs)


def _norm_behind(
    node: Node, graph: OpGraph, readers: dict[str, list[Node]], constant: set[str]
) -> tuple[Node, Node] | None:
    """Returns the norm that is the only reader of the convolution `node`, and the node that gives the norm's result
    (the norm itself or a `getitem`). None if there is no such norm, or if it cannot be folded."""
    if operator(node) not in PLAIN_CONVOLUTIONS or node.spec.dtype in HALVES or node.spec.strides is not None:
        return None
    (norm, *others) = readers.get(node.name, [None])
    if norm is None or others or node.name in graph.outputs or operator(norm) not in _NORMS:
        return None
    if norm.args[0] != f"%{node.name}" or references(norm).count(node.name) > 1 or _trains(norm):
        return None
    filters = name_of(node.args[1])
    groups = argument(node, 6, "groups", 1)
    if filters not in constant or (groups != 1 and graph.spec(filters).shape[1] == "1"):
        return None
    given = [name_of(operand) for operand in (*norm.args[1:5], argument(node, 2, "bias"))]
    if not given[2] or any(name and (name not in constant or not _alike(graph, name, node)) for name in given):
        return None
    if operator(norm) == "batch_norm":
        return norm, norm
    results = readers.get(norm.name, [])
    if [one.op for one in results] != ["getitem"] or results[0].args[1] != 0 or norm.name in graph.outputs:
        return None
    return norm, results[0]


def _trains(norm: Node) -> bool:
    return operator(norm) == "batch_norm" and norm.args[5] is not False


def _alike(graph: OpGraph, name: str, node: Node) -> bool:
    """Whether the parameter `name` is a dense vector of the dtype of the convolution `node`."""
    spec = graph.spec(name)
    return spec.dtype == node.spec.dtype and len(spec.shape) == 1 and spec.strides is None


def _folded(graph: OpGraph, node: Node, norm: Node, last: Node) -> list[Node]:
    """Returns the nodes that replace the convolution `node` and its batch norm: those that compute the new filters and
    the new bias, then the convolution with these, under the name of the norm's result `last`."""
    writer = NodeWriter(graph, node)
    weight, shift, mean, variance = norm.args[1:5]
    filters, bias = node.args[1], writer.argument(2, "bias")
    spec = writer.spec(filters)
    channels = spec.shape[:1]
    eps = norm.args[_NORMS[operator(norm)]]
    scale = writer.add("rsqrt", writer.add("add.Tensor", variance, eps, shape=channels), shape=channels)
    if weight is not None:
        scale = writer.add("mul.Tensor", scale, weight, shape=channels)
    beside = writer.view(scale, (*channels, *["1"] * (len(spec.shape) - 1)), spec.dtype)
    scaled = writer.add("mul.Tensor", filters, beside, shape=spec.shape)
    centre = mean if bias is None else writer.add("sub.Tensor", mean, bias, shape=channels)
    moved = writer.add("mul.Tensor", centre, scale, shape=channels)
    if shift is None:
        moved = writer.add("neg", moved, shape=channels)
    else:
        moved = writer.add("sub.Tensor", shift, moved, shape=channels)
    kwargs = {key: operand for key, operand in node.kwargs.items() if key != "bias"}
    args = (node.args[0], scaled, moved, *node.args[3:])
    return [*writer.nodes, Node(name=last.name, op=node.op, args=args, kwargs=kwargs, spec=last.spec)]
