"""Replaces the sum over the features of a product by a product with the summed weights.

Σₙ (Σₖ x[m,k]·w[k,n]) = Σₖ x[m,k]·(Σₙ w[k,n]): N times less work, and the weights' sums are computed once.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.generator.algebra.facts import GraphFacts, dims_of, is_number
from kernel_assistant.generator.ir.operators import operator
from kernel_assistant.generator.ir.sizes import fixed
from kernel_assistant.generator.lower.node_writer import NodeWriter
from kernel_assistant.records import Node
from kernel_assistant.records.graph import Operand

#: The type of sums. In float32 one product would be less exact than PyTorch's sum of N, whose errors partly cancel.
SUMMED = "f64"
_SCALED = frozenset(("mul", "div"))
_SHIFTED = frozenset(("add", "sub"))


@dataclass(frozen=True)
class Factors:
    """A product of `left` [.., K] with constant `weights`, plus `bias` [N] if it is not None. `summed` is the dimension
    of `weights`, 0 or 1, whose size is N."""

    left: Operand
    weights: Operand
    summed: int
    bias: Operand = None


def sum_of_product(facts: GraphFacts, node: Node) -> list[Node] | None:
    """Returns the nodes that replace Σₙ or meanₙ of x·W + b over the last dimension. Before the sum, the product may be
    scaled by numbers or shifted by constant vectors. Returns None if `node` is no such sum.
    """
    if operator(node) not in ("sum", "mean") or "dtype" in node.kwargs or len(node.args) > 3:
        return None
    spec = facts.spec(node.args[0])
    if spec is None or not spec.shape or fixed(spec.shape[-1]) is None:
        return None
    if dims_of(node.args[1] if len(node.args) > 1 else None, len(spec.shape)) != (len(spec.shape) - 1,):
        return None
    between: list[Node] = []
    below = facts.only_for(node.args[0], node)
    while below is not None and _is_linear(facts, below):
        between.append(below)
        below = facts.only_for(below.args[0], below)
    factors = factors_of(facts, below) if below is not None else None
    if factors is None:
        return None
    return _written(facts, node, between[::-1], factors, spec.shape)


def _is_linear(facts: GraphFacts, node: Node) -> bool:
    """Whether a node multiplies or divides its first operand by a number, or adds a number or a constant vector [N] to
    it or subtracts it.
    """
    given = facts.spec(node.args[0])
    if len(node.args) != 2 or node.kwargs or given is None or given.shape != node.spec.shape:
        return False
    other = node.args[1]
    if operator(node) in _SCALED:
        return is_number(other)
    return operator(node) in _SHIFTED and (is_number(other) or _is_vector(facts, other, node.spec.shape[-1]))


def _is_vector(facts: GraphFacts, operand: Operand, size: str) -> bool:
    spec = facts.spec(operand)
    return spec is not None and facts.is_constant(operand) and spec.shape == (size,)


def factors_of(facts: GraphFacts, node: Node) -> Factors | None:
    """Returns the factors of a product with constant two-dimensional weights; None if `node` is no such product."""
    name = operator(node)
    if node.kwargs:
        return None
    if name == "linear":
        left, weights, *bias = node.args
        factors = Factors(left, weights, 0, *bias)
    elif name in ("matmul", "mm") and len(node.args) == 2:
        factors = Factors(*node.args, summed=1)
    elif name == "addmm" and len(node.args) == 3:
        factors = Factors(node.args[1], node.args[2], 1, node.args[0])
    else:
        return None
    left_spec, weight_spec = facts.spec(factors.left), facts.spec(factors.weights)
    if left_spec is None or weight_spec is None or len(weight_spec.shape) != 2 or len(left_spec.shape) < 2:
        return None
    if not facts.is_constant(factors.weights) or facts.is_constant(factors.left):
        return None
    if factors.bias is not None and not _is_vector(facts, factors.bias, node.spec.shape[-1]):
        return None
    return factors


def _written(
    facts: GraphFacts, node: Node, between: list[Node], factors: Factors, shape: tuple[str, ...]
) -> list[Node]:
    writer, outer = NodeWriter(facts.graph, node), (*shape[:-1], "1")
    inner = facts.spec(factors.left)
    assert inner is not None

    def add(op: str, *args: Operand, shape: tuple[str, ...] = outer) -> str:
        return writer.typed(SUMMED, op, *args, shape=shape)

    each = add("sum.dim_IntList", factors.weights, [factors.summed], shape=inner.shape[-1:])
    terms = add("mul.Tensor", factors.left, each, shape=inner.shape)
    total = add("sum.dim_IntList", terms, [-1], True)
    if factors.bias is not None:
        total = add("add.Tensor", total, add("sum", factors.bias, shape=()))
    features = fixed(shape[-1])
    assert features is not None
    for one in between:
        other = one.args[1]
        if operator(one) in _SHIFTED:
            other = features * other if isinstance(other, int | float) else add("sum", other, shape=())
        total = add(one.op, total, other)
    if operator(node) == "mean":
        total = add("div.Tensor", total, features)
    return writer.end("_to_copy", writer.view(total, node.spec.shape, SUMMED))
