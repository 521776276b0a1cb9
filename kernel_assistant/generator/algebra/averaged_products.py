"""Replaces the average over rows of a product, or over all pixels of a pointwise convolution, by a product with
averages.

meanₛ(x[b,s,:]·W + v) = meanₛ(x[b,s,:])·W + v: for S rows, S times less work. A kernel of the generator computes the new
product and its sums in float64. A library's float32 product of the averages would be less exact than the average of S
products, and would be in TF32 if PyTorch's flags allow it.
"""

from __future__ import annotations

import math

from kernel_assistant.generator.algebra.facts import GraphFacts, dims_of
from kernel_assistant.generator.algebra.pooled_convolutions import is_pointwise, pools_places
from kernel_assistant.generator.algebra.product_sums import SUMMED, Factors, factors_of
from kernel_assistant.generator.ir.operators import operator
from kernel_assistant.generator.ir.sizes import parse_size, size_value
from kernel_assistant.generator.library.products import argument
from kernel_assistant.generator.lower.node_writer import NodeWriter
from kernel_assistant.generator.lower.numbers import HALVES
from kernel_assistant.records import Node

#: Fewest rows that are averaged: about so many times as fast a library computes a product in float32, or with tensor
#: cores, as our kernel does in float64 (estimated: an H200's cache bandwidth, a consumer GPU's float64 rate).
LEAST_ROWS, LEAST_ROWS_OF_TENSOR_CORES = 64, 256


def average_of_product(facts: GraphFacts, node: Node) -> list[Node] | None:
    """Returns the nodes that replace an average over the rows of a matrix product or over the pixels of a 1×1
    convolution: the average of the left factor, then the product. Returns None if `node` is no such average, or if it
    averages too few rows to be worth it.
    """
    inner = facts.only_for(node.args[0], node) if node.args else None
    if inner is None:
        return None
    rank, factors, pointwise = len(inner.spec.shape), _factors(facts, inner), is_pointwise(facts, inner)
    dims, features = _averaged(node, inner), 1 if pointwise else rank - 1
    if factors is None or not dims or (dims != tuple(range(2, rank)) if features == 1 else features in dims):
        return None
    sizes = (size_value(parse_size(inner.spec.shape[dim]), facts.graph.dims) for dim in dims)
    by_tensor_cores = inner.spec.dtype in HALVES or (pointwise and facts.target == "cuda")
    if math.prod(sizes) < (LEAST_ROWS_OF_TENSOR_CORES if by_tensor_cores else LEAST_ROWS):
        return None
    return _written(facts, node, factors, dims, features)


def _averaged(node: Node, inner: Node) -> tuple[int, ...]:
    """Returns the dimensions of `inner`'s result that `node` averages, as indices from 0; an empty tuple if `node` is
    no `mean` and no pooling to a single pixel."""
    rank = len(inner.spec.shape)
    if operator(node) == "mean":
        return dims_of(node.args[1], rank) if len(node.args) > 1 and "dtype" not in node.kwargs else ()
    whole = operator(node).startswith("adaptive_avg_pool") and set(node.spec.shape[2:]) == {"1"}
    whole = whole and pools_places(node, inner)
    return tuple(range(2, rank)) if whole else ()


def _factors(facts: GraphFacts, node: Node) -> Factors | None:
    if not is_pointwise(facts, node):
        return factors_of(facts, node)
    if argument(node, 6, "groups", 1) != 1 or node.kwargs or not facts.is_constant(node.args[1]):
        return None
    bias = argument(node, 2, "bias")
    return Factors(node.args[0], node.args[1], 0, bias) if bias is None or facts.is_constant(bias) else None


def _written(facts: GraphFacts, node: Node, factors: Factors, dims: tuple[int, ...], features: int) -> list[Node]:
    writer, left, weights = NodeWriter(facts.graph, node), facts.spec(factors.left), facts.spec(factors.weights)
    assert left is not None and weights is not None
    outer = tuple(size for dim, size in enumerate(left.shape) if dim not in dims and dim != features)
    taken, given = left.shape[features], weights.shape[factors.summed]
    averages = writer.typed(SUMMED, "mean.dim", factors.left, list(dims), shape=(*outer, taken))
    matrix = writer.view(factors.weights, weights.shape[:2], weights.dtype)
    # Weights are [N, K] or, as the second factor of a product, [K, N].
    beside = (*outer, "1", taken) if factors.summed == 0 else (*outer, taken, "1")
    along = (*outer, given, taken) if factors.summed == 0 else (*outer, taken, given)
    terms = writer.typed(SUMMED, "mul.Tensor", writer.view(averages, beside, SUMMED), matrix, shape=along)
    total = writer.typed(SUMMED, "sum.dim_IntList", terms, [-1 - factors.summed], shape=(*outer, given))
    if factors.bias is not None:
        total = writer.typed(SUMMED, "add.Tensor", total, factors.bias, shape=(*outer, given))
    return writer.end("_to_copy", writer.view(total, node.spec.shape, SUMMED))
