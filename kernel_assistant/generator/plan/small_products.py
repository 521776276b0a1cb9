"""Small linear layers, and convolutions of images of one pixel, as sums of products of elements, so that our kernels
compute them together with what is around them. CUDA.

A library takes 4 to 8 µs for such a product on an H200, and a kernel 1.5 to 2.2 µs with the activation behind it
(experiment 192). Squeeze-and-excitation has two for each block of a network.

Each row reads all weights anew, so that many rows are better left to a library. Where their number is not known, only
products of averages over an image or a sequence are replaced, if they take little time beside reading what is averaged.
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
#: Most rows at the base sizes, most weights, and most multiplications for each averaged element.
MOST_ROWS, MOST_WEIGHTS, MOST_WORK = 16, 1 << 17, 4
#: Half types have kernels with tensor cores (`few_rows.py`).
DTYPES = frozenset({"f32"})


def with_small_products(graph: OpGraph, stay: frozenset[str] = frozenset()) -> OpGraph:
    """The graph with every small product, except for nodes in `stay`, replaced by a sum; the graph itself if there is
    none."""
    moved, averages = varying(graph), dict[str, int]()
    nodes: list[Node] = []
    for node in graph.nodes:
        read = moved.intersection(references(node))
        averaged = min((averages.get(name, 0) for name in read), default=0)
        written = None if node.name in stay or not read else _written(graph, node, averaged)
        nodes += [node] if written is None else written
        if operator(node) in AVERAGES:
            averages[node.name] = _elements(graph, graph.spec(references(node)[0]).shape)
        elif written is not None:
            weights = _elements(graph, graph.spec(references(node)[1]).shape)
            averages[node.name] = averaged - _elements(graph, node.spec.shape[:1]) * weights // MOST_WORK
        elif read and (is_per_element(node) or operator(node) in VIEWS):
            largest = max(_elements(graph, graph.spec(name).shape) for name in read)
            averages[node.name] = averaged if _elements(graph, node.spec.shape) <= largest else 0
    if len(nodes) == len(graph.nodes):
        return graph
    return OpGraph(dims=graph.dims, inputs=graph.inputs, nodes=tuple(nodes), outputs=graph.outputs)


def _written(graph: OpGraph, node: Node, averaged: int) -> list[Node] | None:
    """The nodes that replace a small product; None if `node` is none. `averaged`: the number of elements whose averages
    it reads, beside parameters; 0 if it reads anything else."""
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
    if not dense or not _is_small(graph, lead, outputs, width, averaged):
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


def _is_small(graph: OpGraph, lead: tuple[str, ...], outputs: str, width: str, averaged: int) -> bool:
    rows, known = _elements(graph, lead), [fixed(outputs), fixed(width)]
    weights = math.prod(size for size in known if size)
    if not all(known) or not 0 < rows <= MOST_ROWS or weights > MOST_WEIGHTS:
        return False
    return all(fixed(size) is not None for size in lead) or rows * weights <= MOST_WORK * averaged


def _elements(graph: OpGraph, shape: tuple[str, ...]) -> int:
    """The number of elements of a shape at the base sizes."""
    sizes: list[Size] = [parse_size(size) for size in shape]
    return size_value(product(sizes), graph.dims)
