"""Replaces an `einsum` by steps that have two operands each. A step is an elementwise product, a sum of an elementwise
product, or a matrix product, which remains an `einsum` (`library/matrices.py`).

In half types the result of each step is rounded, as in PyTorch; the products that a step sums are not rounded.
"""

from __future__ import annotations

from kernel_assistant.generator.ir.sizes import parse_size, size_value
from kernel_assistant.generator.lower.einsum.equation import Equation, read_equation
from kernel_assistant.generator.lower.einsum.labelled import Labelled, LabelledWriter, picked
from kernel_assistant.generator.lower.einsum.order import Contraction, Tree, best_order, count
from kernel_assistant.generator.lower.node_writer import NodeWriter
from kernel_assistant.records import Node

_FLOATS = frozenset(("f64", "f32", "bf16", "f16"))


def einsum_in_steps(writer: NodeWriter) -> list[Node]:
    """Returns the nodes that replace an `einsum`. Returns the node itself if its equation already is one matrix
    product, or if it has a diagonal, integers, or operands of several dtypes."""
    node, operands = writer.node, writer.argument(1, "tensors")
    if not isinstance(node.args[0], str) or not isinstance(operands, list):
        return [node]
    specs = [writer.spec(operand) for operand in operands]
    dtypes = {spec.dtype for spec in (*specs, node.spec)}
    equation = read_equation(node.args[0], [spec.shape for spec in specs], node.spec.shape)
    if equation is None or len(dtypes) > 1 or not dtypes <= _FLOATS:
        return [node]
    values = [Labelled(operand, side) for operand, side in zip(operands, equation.sides, strict=True)]
    steps = _Steps(writer, equation, values)
    plain = "->" in node.args[0] and "." not in node.args[0] and not writer.nodes
    return [node] if plain and steps.is_one_product() else steps.nodes()


class _Steps:
    """The steps of one equation. Before them, each operand loses its broadcast dimensions, and is summed over the
    letters that neither the result nor another operand has."""

    def __init__(self, writer: NodeWriter, equation: Equation, values: list[Labelled]) -> None:
        self._writer, self._out = writer, equation.out
        self._labelled = LabelledWriter(writer, equation.sizes)
        dims = writer.graph.dims
        self._counts = {letter: size_value(parse_size(size), dims) for letter, size in equation.sizes.items()}
        shapes = [writer.spec(value.operand).shape for value in values]
        values = [
            self._labelled.squeezed(value, equation.repeated(value.letters, shape))
            for value, shape in zip(values, shapes, strict=True)
        ]
        letters = "".join(value.letters for value in values)
        kept = {letter for letter in letters if letter in self._out or letters.count(letter) > 1}
        self._values = [self._labelled.summed(value, kept) for value in values]
        sides = [frozenset(value.letters) for value in self._values]
        self._tree = best_order(sides, frozenset(self._out), self._counts)

    def is_one_product(self) -> bool:
        """Whether the equation is a single matrix product of two operands."""
        return isinstance(self._tree, Contraction) and len(self._values) == 2 and self._is_product(self._tree)

    def nodes(self) -> list[Node]:
        """Returns all nodes that replace the `einsum`; the last one computes its result."""
        value = self._value(self._tree, self._out)
        if value.letters == self._out and self._writer.nodes:
            return self._writer.ended(str(value.operand))
        return self._writer.end("permute", value.operand, [value.letters.index(letter) for letter in self._out])

    def _value(self, tree: Tree, order: str) -> Labelled:
        """Returns the result of `tree`: an operand, unchanged, or the result of a step with its letters in the order
        `order`."""
        if isinstance(tree, int):
            return self._values[tree]
        summed = "".join(sorted((self._letters(tree.left) | self._letters(tree.right)) - tree.letters))
        if self._is_product(tree):
            return self._labelled.product(self._factors(tree, order, summed), order)
        sides = [self._value(side, picked(order + summed, self._letters(side))) for side in (tree.left, tree.right)]
        return self._labelled.elementwise(sides, order, summed)

    def _factors(self, step: Contraction, order: str, summed: str) -> list[Labelled]:
        """Returns both factors of a matrix product. A factor that is itself computed by a step gets the order of
        dimensions in which the library reads it; if possible, the last dimension of its largest operand stays last."""
        shared = self._letters(step.left) & self._letters(step.right)
        factors = []
        for side in (step.left, step.right):
            own, last = picked(order, self._letters(side) - shared), self._largest(side).letters[-1:]
            matrix = own + summed if last in summed else summed + own
            factors.append(self._value(side, picked(order, shared) + matrix))
        return factors

    def _is_product(self, step: Contraction) -> bool:
        """Whether the step is a matrix product: both factors share a letter that is summed, and each has a letter of
        its own."""
        left, right = self._letters(step.left), self._letters(step.right)
        return bool((left & right) - step.letters and left - right and right - left)

    def _letters(self, tree: Tree) -> frozenset[str]:
        return frozenset(self._values[tree].letters) if isinstance(tree, int) else tree.letters

    def _largest(self, tree: Tree) -> Labelled:
        """Returns the operand with the most elements among all operands of `tree`."""
        if isinstance(tree, int):
            return self._values[tree]
        return max(map(self._largest, (tree.left, tree.right)), key=lambda value: count(value.letters, self._counts))
