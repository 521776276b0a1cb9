"""Adds graph nodes that squeeze, sum and multiply tensors. Each dimension of these tensors is named by a letter, as in
the equation of an einsum."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kernel_assistant.generator.lower.node_writer import NodeWriter
from kernel_assistant.records.graph import Operand


@dataclass(frozen=True, slots=True)
class Labelled:
    """An operand with a letter for each of its dimensions."""

    operand: Operand
    letters: str


class LabelledWriter:
    """Adds nodes for `Labelled` values to a NodeWriter; `sizes` has the size of each letter."""

    def __init__(self, writer: NodeWriter, sizes: Mapping[str, str]) -> None:
        self._writer, self._sizes = writer, sizes

    def squeezed(self, value: Labelled, dims: Sequence[int]) -> Labelled:
        """Returns `value` without the dimensions with the indices `dims`, which have size 1."""
        return self._without("squeeze.dims", value, dims) if dims else value

    def summed(self, value: Labelled, kept: Collection[str]) -> Labelled:
        """Returns `value` summed over all letters that are not in `kept`."""
        dims = [dim for dim, letter in enumerate(value.letters) if letter not in kept]
        return self._without("sum.dim_IntList", value, dims) if dims else value

    def elementwise(self, values: Sequence[Labelled], order: str, summed: str) -> Labelled:
        """Returns the elementwise product of values, summed over the letters `summed`. The letters of the result are
        `order`, in this order.
        """
        letters = order + summed
        factors = [self._spread(value, letters) for value in values]
        if not summed:
            return self._added(order, "mul.Tensor", *factors)
        # Not rounded before it is summed.
        terms = self._writer.add("mul.Tensor", *factors, shape=self._shape(letters))
        return self.summed(Labelled(terms, letters), order)

    def product(self, values: Sequence[Labelled], order: str) -> Labelled:
        """Returns the matrix product of two values, as an `einsum`. The letters of the result are `order`, in this
        order."""
        text = f"{','.join(value.letters for value in values)}->{order}"
        operands: list[Operand] = [value.operand for value in values]
        return self._added(order, "einsum", text, operands)  # type: ignore[arg-type]

    def _spread(self, value: Labelled, letters: str) -> Operand:
        """Returns `value` in a shape that broadcasts against the letters `letters`: its dimensions in their order, with
        size 1 for each missing letter behind the first of them.
        """
        order = picked(letters, value.letters)
        if order != value.letters:
            permutation: Operand = [value.letters.index(letter) for letter in order]
            value = self._added(order, "permute", value.operand, permutation)
        behind = letters[letters.index(order[0]) :] if order else ""
        if behind == order:
            return value.operand
        shape = tuple(self._sizes[letter] if letter in order else "1" for letter in behind)
        return self._writer.view(value.operand, shape, self._writer.node.spec.dtype)

    def _without(self, op: str, value: Labelled, dims: Sequence[int]) -> Labelled:
        letters = "".join(letter for dim, letter in enumerate(value.letters) if dim not in dims)
        return self._added(letters, op, value.operand, [*dims])

    def _added(self, letters: str, op: str, *args: Operand) -> Labelled:
        dtype = self._writer.node.spec.dtype
        return Labelled(self._writer.typed(dtype, op, *args, shape=self._shape(letters)), letters)

    def _shape(self, letters: str) -> tuple[str, ...]:
        return tuple(self._sizes[letter] for letter in letters)


def picked(order: str, letters: Collection[str]) -> str:
    """Returns the characters of `order` that are in `letters`, in the order in which `order` has them."""
    return "".join(letter for letter in order if letter in letters)
