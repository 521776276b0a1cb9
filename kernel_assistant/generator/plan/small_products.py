"""Replaces small linear layers, and convolutions of images of one pixel, by elementwise products and sums, so that one
kernel computes them together with the operators around them. CUDA only.

A library takes 4 to 8 µs for such a product on an H200, a kernel 1.5 to 2.2 µs including the activation behind it
(experiment 192). Squeeze-and-excitation has two such products in each block of a network.

For each row all weights are read again, so that products of many rows are left to a library. If the number of rows is
not known, only products of averages over an image or a sequence are replaced, and only if they take little time
compared with reading the averaged values.
"""

from __future__ import annotations

from typing import NamedTuple

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.operators import PLAIN_CONVOLUTIONS, operator
from kernel_assistant.generator.ir.sizes import fixed
from kernel_assistant.generator.loops.strided import VIEWS, Resolver
from kernel_assistant.generator.lower.large_convolutions import is_each
from kernel_assistant.generator.lower.node_writer import NodeWriter
from kernel_assistant.generator.plan.channels_last_readers import is_per_element
from kernel_assistant.generator.plan.cost import elements
from kernel_assistant.generator.plan.few_rows import varying_values
from kernel_assistant.records import Node, OpGraph
from kernel_assistant.records.graph import Operand, references

#: Operators that reduce an image or a sequence. Maxima count as averages here: they read as much.
AVERAGES = frozenset(
    ("mean", "amax", *(f"adaptive_{kind}_pool{rank}d" for kind in ("avg", "max") for rank in (1, 2, 3)))
)
#: Most rows at the base sizes, most weights, and most multiplications for each averaged element.
MOST_ROWS, MOST_WEIGHTS, MOST_WORK = 16, 1 << 17, 4
#: Half types have kernels with tensor cores (`few_rows.py`).
DTYPES = frozenset({"f32"})


class _Product(NamedTuple):
    """The product x [rows, width] · weightᵀ [width, outputs] + bias that `node` computes. `lead` has the sizes of x
    before its last dimension, for a convolution only the batch size. `rank` is the number of spatial dimensions of a
    convolution, 0 for a linear layer. `work` is the number of multiplications at the base sizes."""

    node: Node
    rank: int
    x: Operand
    weight: Operand
    bias: Operand
    lead: tuple[str, ...]
    outputs: str
    width: str
    work: int


def with_small_products(graph: OpGraph, stay: frozenset[str] = frozenset()) -> OpGraph:
    """Returns the graph in which an elementwise product and a sum replace every small product, except nodes in `stay`;
    the graph itself if it has none."""
    varying, values = varying_values(graph), Resolver(graph)
    #: The number of elements of which a value has averages, less the work done on these.
    averaged: dict[str, int] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        read = varying.intersection(references(node))
        least = min((averaged.get(name, 0) for name in read), default=0)
        product = _small_product(graph, node, values) if read and node.name not in stay else None
        if product is not None and (_has_known_rows(product) or product.work <= MOST_WORK * least):
            nodes += _written(graph, product)
            averaged[node.name] = least - product.work // MOST_WORK
            continue
        nodes.append(node)
        if operator(node) in AVERAGES:
            averaged[node.name] = elements(graph.spec(references(node)[0]), graph.dims)
        elif read and (is_per_element(node) or operator(node) in VIEWS) and not _is_spread(graph, node, read):
            averaged[node.name] = least
    if len(nodes) == len(graph.nodes):
        return graph
    return OpGraph(dims=graph.dims, inputs=graph.inputs, nodes=tuple(nodes), outputs=graph.outputs)


def _is_spread(graph: OpGraph, node: Node, read: frozenset[str]) -> bool:
    """Whether a node has more elements than each of the values `read`, as after broadcasting two averages against each
    other."""
    most = max(elements(graph.spec(name), graph.dims) for name in read)
    return elements(node.spec, graph.dims) > most


def _has_known_rows(product: _Product) -> bool:
    return all(fixed(size) is not None for size in product.lead)


def _small_product(graph: OpGraph, node: Node, values: Resolver) -> _Product | None:
    """Returns the product that `node` computes; None if it is no product, or has many rows at the base sizes or many
    weights."""
    rank = 0 if node.op == "linear" else PLAIN_CONVOLUTIONS.get(operator(node), -1)
    if rank < 0 or node.spec.dtype not in DTYPES or node.spec.strides is not None:
        return None
    writer = NodeWriter(graph, node)
    x, weight = node.args[:2]
    try:
        shape, filters = writer.spec(x).shape, writer.spec(weight).shape
        dense = values.view(x).is_contiguous
    except Unsupported:
        return None
    if not dense or len(filters) != rank + 2 or (rank and not _is_of_one_pixel(writer, shape, filters, rank)):
        return None
    outputs, width = filters[:2]
    weights = (fixed(outputs) or 0) * (fixed(width) or 0)
    if not 0 < weights <= MOST_WEIGHTS:
        return None
    rows = elements(node.spec, graph.dims) // (fixed(outputs) or 1)
    if not 0 < rows <= MOST_ROWS:
        return None
    lead = shape[:1] if rank else shape[:-1]
    return _Product(node, rank, x, weight, writer.argument(2, "bias"), lead, outputs, width, rows * weights)


def _is_of_one_pixel(writer: NodeWriter, x: tuple[str, ...], filters: tuple[str, ...], rank: int) -> bool:
    """Whether a convolution of `rank` spatial dimensions is a matrix product: image and filter have one spatial
    element, and there are no padding and no groups."""
    padding, groups = writer.argument(4, "padding", 0), writer.argument(6, "groups", 1)
    return len(x) == rank + 2 and {*x[2:], *filters[2:]} == {"1"} and is_each(padding, 0) and groups == 1


def _written(graph: OpGraph, product: _Product) -> list[Node]:
    """Returns the nodes that replace a small product."""
    node, rank, x, weight, bias, lead, outputs, width, _ = product
    writer = NodeWriter(graph, node)
    rows = writer.view(x, (*lead, "1", width), node.spec.dtype)
    weights = writer.view(weight, (outputs, width), node.spec.dtype) if rank else weight
    terms = writer.add("mul.Tensor", rows, weights, shape=(*lead, outputs, width))
    shape = (*lead, outputs) if rank else node.spec.shape
    last = writer.add("sum", terms, [-1], shape=shape)
    if bias is not None:
        last = writer.add("add.Tensor", last, bias, shape=shape)
    return writer.ended(writer.view(last, node.spec.shape, node.spec.dtype) if rank else last)
