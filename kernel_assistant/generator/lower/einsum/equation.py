"""Reads the equation of an `einsum` as PyTorch does; each dimension gets a letter, also those of an ellipsis."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_assistant.generator.ir.sizes import parse_size

_DOTS = "..."


@dataclass(frozen=True, slots=True)
class Equation:
    """The letters of each operand's dimensions (`sides`) and of the result's (`out`), and the size of each letter. An
    operand may have size 1 where its letter has another size; it is then broadcast in this dimension.
    """

    sides: tuple[str, ...]
    out: str
    sizes: dict[str, str]

    def repeated(self, side: str, shape: tuple[str, ...]) -> list[int]:
        """Returns the indices of the dimensions in which an operand with the letters `side` and this shape is
        broadcast."""
        pairs = enumerate(zip(side, shape, strict=True))
        return [dim for dim, (letter, size) in pairs if parse_size(size) == 1 != parse_size(self.sizes[letter])]


def read_equation(text: str, shapes: Sequence[tuple[str, ...]], out_shape: tuple[str, ...]) -> Equation | None:
    """Returns the equation for operands and a result of these shapes. Returns None if the equation has a diagonal (one
    letter twice in an operand), or sizes that do not match.
    """
    inputs, arrow, given = text.replace(" ", "").partition("->")
    spelled = inputs.split(",")
    if len(spelled) != len(shapes) or not all(map(_is_spelled, [*spelled, given])):
        return None
    ranks = [len(shape) - len(side.replace(_DOTS, "")) for side, shape in zip(spelled, shapes, strict=True)]
    if any(rank < 0 or (rank and _DOTS not in side) for side, rank in zip(spelled, ranks, strict=True)):
        return None
    free = [letter for letter in string.ascii_letters if letter not in text]
    if max(ranks) > len(free):
        return None
    dots = "".join(free[: max(ranks)])
    sides = tuple(side.replace(_DOTS, dots[len(dots) - rank :]) for side, rank in zip(spelled, ranks, strict=True))
    out = given.replace(_DOTS, dots) if arrow else dots + _unpaired("".join(spelled))
    if not set(out) <= set("".join(sides)) or len(out) != len(out_shape):
        return None
    sizes = _sizes([*zip(sides, shapes, strict=True)], dict(zip(out, out_shape, strict=True)))
    return None if sizes is None else Equation(sides, out, sizes)


def _is_spelled(side: str) -> bool:
    """Whether the letters of an operand or the result are all different, with at most one ellipsis among them."""
    letters = side.replace(_DOTS, "", 1)
    return len(set(letters)) == len(letters) and all(letter in string.ascii_letters for letter in letters)


def _unpaired(letters: str) -> str:
    """Returns the letters of the result if the equation does not state them: those that occur once in it, capitals
    first."""
    return "".join(letter for letter in sorted(set(letters) - {"."}) if letters.count(letter) == 1)


def _sizes(operands: Sequence[tuple[str, tuple[str, ...]]], out: dict[str, str]) -> dict[str, str] | None:
    """Returns the size of each letter, as the result's shape writes it if the result has the letter. Returns None if
    operands have different sizes other than 1 for a letter, or if the result has another size."""
    sizes: dict[str, str] = {}
    for letter, size in (pair for side, shape in operands for pair in zip(side, shape, strict=True)):
        known = sizes.get(letter, "1")
        if parse_size(known) == 1:
            sizes[letter] = size
        elif parse_size(size) not in (1, parse_size(known)):
            return None
    if any(parse_size(sizes[letter]) != parse_size(size) for letter, size in out.items()):
        return None
    return sizes | out
