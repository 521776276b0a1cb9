"""Replaces linear layers of few rows, as when a language model generates a token, by a kernel of the generator. CUDA
only; see docs/language_models.md.

The time of such a product is that of reading its weights from memory, so the kernel reads each weight only once. One
kernel computes several layers that have the same input rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.sizes import Size, fixed, multiple_of, parse_size, product, size_value
from kernel_assistant.generator.loops.linears import LINEARS
from kernel_assistant.generator.loops.strided import Resolver
from kernel_assistant.generator.lower.node_writer import NodeWriter
from kernel_assistant.generator.print.cuda.templates.linears import VECTOR
from kernel_assistant.records import Node, OpGraph
from kernel_assistant.records.graph import Operand, references

#: Most rows at the base sizes; more rows are right and take the time of as many.
MOST_ROWS = 8
DTYPES = ("bf16", "f16")
#: A block reads whole rows of weights for 16 outputs. A layer of fewer outputs than this has too few blocks for a large
#: GPU, so that it stays a library's if its rows are longer than `MOST_WIDTH`.
LEAST_OUTPUTS, MOST_WIDTH = 1024, 8192
#: Most layers of one kernel.
MOST_LAYERS = 8


def with_few_rows(graph: OpGraph, stay: frozenset[str] = frozenset()) -> OpGraph:
    """Returns the graph with all linear layers of at most MOST_ROWS rows, except for nodes in `stay`, replaced by
    `ka_linears` nodes, each for several layers that read the same rows; the graph itself if it has no such layer."""
    values = Resolver(graph)
    order = {name: position for position, name in enumerate([*(one.name for one in graph.inputs), *values.nodes])}
    varying = varying_values(graph)
    #: The layers of each x, in groups; those of a group are computed where the first one is.
    groups: dict[str, list[list[Node]]] = {}
    for node in graph.nodes:
        if node.op == "linear" and node.name not in stay and _fits(graph, node, values, varying):
            some = groups.setdefault(str(node.args[0]), [])
            if not some or len(some[-1]) == MOST_LAYERS or not _is_there(node, order, some[-1][0]):
                some.append([])
            some[-1].append(node)
    if not groups:
        return graph
    first = {group[0].name: group for some in groups.values() for group in some}
    gone = {node.name for group in first.values() for node in group}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.name in first:
            nodes += _written(graph, first[node.name], values)
        elif node.name not in gone:
            nodes.append(node)
    return OpGraph(dims=graph.dims, inputs=graph.inputs, nodes=tuple(nodes), outputs=graph.outputs)


def varying_values(graph: OpGraph) -> frozenset[str]:
    """Returns the names of all values that depend on inputs of the module, and not on parameters alone."""
    names = {value.name for value in graph.inputs if value.kind == "input"}
    for node in graph.nodes:
        if names.intersection(references(node)):
            names.add(node.name)
    return frozenset(names)


def _is_there(node: Node, order: dict[str, int], first: Node) -> bool:
    """Whether all operands of the layer `node` are computed before the layer `first` of its group."""
    return all(order[name] < order[first.name] for name in references(node))


def _fits(graph: OpGraph, node: Node, values: Resolver, varying: frozenset[str]) -> bool:
    writer = NodeWriter(graph, node)
    x, weight, bias = *node.args[:2], writer.argument(2, "bias")
    operands = [x, weight] if bias is None else [x, weight, bias]
    try:
        specs = [writer.spec(operand) for operand in operands]
        read = values.view(weight)
        out = values.buffer(node.name)
    except Unsupported:
        return False
    if not varying.intersection(references(node)) or (bias is not None and specs[2].shape != specs[1].shape[:1]):
        return False
    dtypes = {spec.dtype for spec in specs} | {node.spec.dtype}
    if len(dtypes) > 1 or dtypes - set(DTYPES) or len(specs[1].shape) != 2 or not out.is_contiguous:
        return False
    sizes: list[Size] = [parse_size(size) for size in specs[0].shape[:-1]]
    rows = size_value(product(sizes), graph.dims)
    steps = (*read.strides[:1], *read.sizes[1:])
    outputs, width = (fixed(size) for size in specs[1].shape)
    if not outputs or not width or (outputs < LEAST_OUTPUTS and width > MOST_WIDTH):
        return False
    return 0 < rows <= MOST_ROWS and read.strides[1] == 1 and all(multiple_of(one, VECTOR) for one in steps)


def _written(graph: OpGraph, group: Sequence[Node], values: Resolver) -> list[Node]:
    writer = NodeWriter(graph, group[0])
    x = _dense(writer, group[0].args[0], values)
    weights = [node.args[1] for node in group]
    given = [NodeWriter(graph, node).argument(2, "bias") for node in group]
    biases = [None if bias is None else _dense(writer, bias, values) for bias in given]
    spec = group[0].spec
    head = writer.typed(spec.dtype, LINEARS, x, weights, biases, shape=spec.shape)  # type: ignore[arg-type]
    taken = [
        Node(name=node.name, op="getitem", args=(head, number), spec=node.spec) for number, node in enumerate(group)
    ]
    return [*writer.nodes, *taken]


def _dense(writer: NodeWriter, operand: Operand, values: Resolver) -> Operand:
    """Returns the operand, or a copy of it if it is not contiguous in memory."""
    view = values.view_or_none(operand)
    return operand if view is not None and view.is_contiguous else writer.copy(operand)
