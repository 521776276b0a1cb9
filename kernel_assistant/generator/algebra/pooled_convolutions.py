"""Moves average pooling from behind a pointwise convolution to before it.

mean(w·x + b) = w·mean(x) + b, because the convolution treats each pixel alike. The convolution then computes only as
many pixels as the pooling has outputs.
"""

from __future__ import annotations

from kernel_assistant.generator.algebra.facts import GraphFacts
from kernel_assistant.generator.ir.operators import PLAIN_CONVOLUTIONS, operator
from kernel_assistant.generator.library.products import argument
from kernel_assistant.generator.lower.large_convolutions import is_each
from kernel_assistant.generator.lower.node_writer import NodeWriter
from kernel_assistant.generator.lower.numbers import HALVES
from kernel_assistant.records import Node

#: Poolings that average.
_POOLINGS = frozenset(f"{kind}_pool{rank}d" for kind in ("avg", "adaptive_avg") for rank in (1, 2, 3))
#: A pooling moves only in a graph with more than so many other convolutions. They compute in TF32 by default, and the
#: average of n results has an error √n times smaller than one result has: lost if the average comes first, but little
#: beside the errors of the others.
_OTHERS = 4


def pooling_of_pointwise(facts: GraphFacts, node: Node) -> list[Node] | None:
    """Returns the nodes that replace an average pooling behind a 1×1 convolution: the pooling first, then the
    convolution. Returns None if the rule does not apply to `node`."""
    inner = facts.only_for(node.args[0], node) if node.args else None
    if inner is None or not is_pointwise(facts, inner):
        return None
    if (
        operator(node) not in _POOLINGS
        or not pools_places(node, inner)
        or not _counts_all(node)
        or _convolutions(facts) <= _OTHERS
    ):
        return None
    before = facts.spec(inner.args[0])
    assert before is not None
    writer = NodeWriter(facts.graph, node)
    shape = (*before.shape[:2], *node.spec.shape[2:])
    pooled = writer.add(node.op, inner.args[0], *node.args[1:], shape=shape, **node.kwargs)
    last = Node(name=node.name, op=inner.op, args=(pooled, *inner.args[1:]), kwargs=inner.kwargs, spec=node.spec)
    return [*writer.nodes, last]


def pools_places(node: Node, inner: Node) -> bool:
    """Whether a pooling has as many spatial dimensions as the convolution `inner` whose result it reads. A pooling with
    one more would take that result for an unbatched tensor, and pool its channels as well."""
    return operator(node).endswith(f"{len(inner.spec.shape) - 2}d")


def _convolutions(facts: GraphFacts) -> int:
    return sum(operator(node) in PLAIN_CONVOLUTIONS for node in facts.graph.nodes)


def is_pointwise(facts: GraphFacts, node: Node) -> bool:
    """Whether a node is a 1×1 convolution (stride 1, no padding) with a batch dimension. False for half types, in
    which averages before the convolution would be rounded."""
    spatial = PLAIN_CONVOLUTIONS.get(operator(node), 0)
    filters = facts.spec(node.args[1]) if spatial else None
    if filters is None or len(node.spec.shape) != spatial + 2 or node.spec.strides is not None:
        return False
    if node.spec.dtype in HALVES:
        return False
    stride, padding = argument(node, 3, "stride", 1), argument(node, 4, "padding", 0)
    return set(filters.shape[2:]) == {"1"} and is_each(stride, 1) and is_each(padding, 0)


def _counts_all(node: Node) -> bool:
    """Whether a pooling averages elements of its operand only: it has no padding, no incomplete windows and no
    `divisor_override`."""
    if operator(node).startswith("adaptive"):
        return True
    padding, ceiling = argument(node, 3, "padding", 0), argument(node, 4, "ceil_mode", False)
    return is_each(padding, 0) and not ceiling and argument(node, 6, "divisor_override") is None
