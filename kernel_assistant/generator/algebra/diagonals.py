"""Replaces a product with a diagonal matrix by an elementwise product."""

from __future__ import annotations

from kernel_assistant.generator.algebra.facts import GraphFacts
from kernel_assistant.generator.ir.operators import operator
from kernel_assistant.generator.lower.node_writer import NodeWriter
from kernel_assistant.records import Node


def product_with_diagonal(facts: GraphFacts, node: Node) -> list[Node] | None:
    """Returns the nodes that replace a product with a diagonal matrix: diag(d)·B = d[:, None] ⊙ B, A·diag(d) = A ⊙ d.
    Returns None if neither factor is such a matrix.
    """
    if operator(node) not in ("mm", "matmul") or len(node.args) != 2 or node.kwargs:
        return None
    shapes = [spec.shape if (spec := facts.spec(one)) is not None else () for one in node.args]
    if [len(shape) for shape in shapes] != [2, 2]:
        return None
    for index in (0, 1):
        matrix = facts.only_for(node.args[index], node)
        if matrix is None or not _is_diagonal(facts, matrix):
            continue
        writer, vector = NodeWriter(facts.graph, node), matrix.args[0]
        size = shapes[index][0]
        beside = writer.view(vector, (size, "1") if index == 0 else ("1", size), node.spec.dtype)
        return writer.end("mul.Tensor", *((beside, node.args[1]) if index == 0 else (node.args[0], beside)))
    return None


def _is_diagonal(facts: GraphFacts, node: Node) -> bool:
    """Whether a node makes the matrix that has a given vector on its main diagonal."""
    if operator(node) not in ("diag", "diag_embed") or len(node.args) > 1 or node.kwargs:
        return False
    spec = facts.spec(node.args[0])
    return spec is not None and len(spec.shape) == 1 and spec.strides is None
