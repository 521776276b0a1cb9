"""Chooses the order in which the operands of an `einsum` are multiplied, two at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

#: With more operands the cheapest next step is taken; with so many or fewer all orders are tried: 180 of five.
MOST_TRIED = 5
#: A GPU does about so many multiplications in float32 while it moves one value to or from memory: an H200 has 3.3e13
#: and 1.2e12 a second (data sheet).
WORK_OF_A_VALUE = 28


@dataclass(frozen=True, slots=True)
class Contraction:
    """A step that multiplies `left` and `right`; each is the number of an operand or another step. `letters` are those
    of the result.
    """

    left: Tree
    right: Tree
    letters: frozenset[str]


Tree = int | Contraction
_Operand = tuple[Tree, frozenset[str]]


def best_order(sides: Sequence[frozenset[str]], out: frozenset[str], counts: Mapping[str, int]) -> Tree:
    """Returns the cheapest order in which to multiply operands with the letters `sides` to a result with the letters
    `out`, as a tree of steps. `counts` has the size of each letter."""
    return _cheapest(tuple(enumerate(sides)), out, counts)[1]


def _cheapest(operands: tuple[_Operand, ...], out: frozenset[str], counts: Mapping[str, int]) -> tuple[float, Tree]:
    """Returns the cost of the cheapest order in which to multiply all operands, and this order. With more than
    MOST_TRIED operands, the next step is always the cheapest one.
    """
    if len(operands) == 1:
        return 0.0, operands[0][0]
    steps = [_step(operands, pair, out, counts) for pair in combinations(range(len(operands)), 2)]
    if len(operands) > MOST_TRIED:
        steps = [min(steps, key=lambda candidate: candidate[0])]
    totals = []
    for cost, rest in steps:
        following, tree = _cheapest(rest, out, counts)
        totals.append((cost + following, tree))
    return min(totals, key=lambda candidate: candidate[0])


def _step(
    operands: tuple[_Operand, ...], pair: tuple[int, ...], out: frozenset[str], counts: Mapping[str, int]
) -> tuple[float, tuple[_Operand, ...]]:
    """Returns the cost of multiplying the two operands at the indices `pair`, and the operands of the following steps:
    the product, then all operands that are not in `pair`.
    """
    (left, left_letters), (right, right_letters) = (operands[index] for index in pair)
    rest = tuple(operand for index, operand in enumerate(operands) if index not in pair)
    letters = (left_letters | right_letters) & out.union(*(letters for _, letters in rest))
    moved = sum(count(one, counts) for one in (left_letters, right_letters, letters))
    cost = moved + count(left_letters | right_letters, counts) / WORK_OF_A_VALUE
    return cost, ((Contraction(left, right, letters), letters), *rest)


def count(letters: Iterable[str], counts: Mapping[str, int]) -> int:
    """Returns the number of elements of a value with these letters."""
    total = 1
    for letter in letters:
        total *= counts[letter]
    return total
