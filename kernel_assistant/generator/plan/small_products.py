"""Small linear layers, and convolutions of images of one pixel, as sums of products of elements, so that our kernels
compute them together with what is around them. CUDA.

A library takes 4 to 8 µs for such a product on an H200, and a kernel 1.5 to 2.2 µs with the activation behind it
(experiment 192). Squeeze-and-excitation has two for each block of a network.

Each row reads all weights anew, so that many rows are better left to a library. Where their number is not known, only
products of averages over an image or a sequence are replaced: they have little to do beside what is averaged.
"""

from __future__ import annotations

import math

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.operators import PLAIN_CONVOLUTIONS, operator
from kernel_assistant.generator.ir.sizes import Size, fixed, parse_size, product, size_value
from kernel_assistant.generator.loops.strided import VIEWS, Resolver
from kernel_assistant.generator.lower.large_convolutions import is_each
from kernel_assistant.generator.lower.node_writer import NodeWriter
from kernel_assistant.generator.plan.channels_last_readers import is_per_element
from kernel_assistant.generator.plan.few_rows import varying
from kernel_assistant.records import Node, OpGraph
from kernel_assistant.records.graph import references

#: Operators whose results have fewer elements than what they read.
AVERAGES = frozenset(
    ("mean", "amax", *(f"adaptive_{kind}_pool{rank}d" for kind in ("avg", "max") for rank in (1, 2, 3)))
)
#: Most rows at the base sizes, and most weights.
MOST_ROWS, MOST_WEIGHTS = 16, 1 << 17
#: Half types have kernels with tensor cores (`few_rows.py`).
DTYPES = frozenset({"f32"})


def with_small_products(graph: OpGraph, stay: frozenset[str] = frozenset()) -> OpGraph:
    """The graph with every small product, except for nodes in `stay`, replaced by a sum; the graph itself if there is
    none."""
    moved, averages = varying(graph), set[str]()
    nodes: list[Node] = []
    for node in graph.nodes:
        read = moved.intersection(references(node))
        written = None
        if read and node.name not in stay:
            written = _written(graph, node, read <= averages)
        nodes += [node] if written is None else written
        follows = written is not None or is_per_element(node) or operator(node) in VIEWS
        if operator(node) in AVERAGES or (follows and read and read <= averages):
            averages.add(node.name)
    if len(nodes) == len(graph.nodes):
        return graph
    return OpGraph(dims=graph.dims, inputs=graph.inputs, nodes=tuple(nodes), outputs=graph.outputs)


def _written(graph: OpGraph, node: Node, of_averages: bool) -> list[Node] | None:
    """The nodes that replace a small product; None if `node` is none. `of_averages`: whether all that it reads, beside
    parameters, are averages."""
    rank = 0 if node.op == "linear" else PLAIN_CONVOLUTIONS.get(operator(node), -1)
    if rank < 0 or node.spec.dtype not in DTYPES or node.spec.strides is not None:
        return None
    writer = NodeWriter(graph, node)
    x, weight, bias = *node.args[:2], writer.argument(2, "bias")
    try:
        lead, filters = writer.spec(x).shape, writer.spec(weight).shape
        dense = Resolver(graph).view(x).is_contiguous
    except Unsupported:
        return None
    if len(filters) != (rank + 2) or (rank and not _is_of_one_pixel(writer, lead, filters, rank)):
        return None
    lead, (outputs, width) = lead[:1] if rank else lead[:-1], filters[:2]
    if not of_averages and any(fixed(size) is None for size in lead):
        return None
    if not dense or not _is_small(graph, lead, outputs, width):
        return None
    rows = writer.view(x, (*lead, "1", width), node.spec.dtype)
    weights = writer.view(weight, (outputs, width), node.spec.dtype) if rank else weight
    terms = writer.add("mul.Tensor", rows, weights, shape=(*lead, outputs, width))
    shape = (*lead, outputs) if rank else node.spec.shape
    last = writer.add("sum", terms, [-1], shape=shape)
    if bias is not None:
        last = writer.add("add.Tensor", last, bias, shape=shape)
    return writer.ended(writer.view(last, node.spec.shape, node.spec.dtype) if rank else last)


def _is_of_one_pixel(writer: NodeWriter, x: tuple[str, ...], filters: tuple[str, ...], rank: int) -> bool:
    """Whether a convolution of `rank` spatial dimensions is a product of a matrix for each image of the batch."""
    padding, groups = writer.argument(4, "padding", 0), writer.argument(6, "groups", 1)
    return len(x) == rank + 2 and {*x[2:], *filters[2:]} == {"1"} and is_each(padding, 0) and groups == 1


def _is_small(graph: OpGraph, lead: tuple[str, ...], outputs: str, width: str) -> bool:
    sizes: list[Size] = [parse_size(size) for size in lead]
    rows, known = size_value(product(sizes), graph.dims), [fixed(outputs), fixed(width)]
    if not all(known) or not 0 < rows <= MOST_ROWS:
        return False
    return math.prod(size for size in known if size) <= MOST_WEIGHTS
