"""Names the variables of generated kernels after nodes of the graph: `t5` holds the value of n5."""

from __future__ import annotations

import re
from collections.abc import Iterable
from string import ascii_lowercase

from kernel_assistant.generator.ir.expr import INNER, Expr

#: Inputs, parameters and nodes of a canonical graph, and what is made of them. Other names may be words of C.
CANONICAL = re.compile(r"[xpbn]\d+(?:_\w+)?")
#: A node of a canonical graph, or one of those that replace it.
_NUMBERED = re.compile(r"n\d+(?:_\d+)*")


def label(expr: Expr) -> str:
    """Returns the name of a variable for `expr` without its prefix: the number of the expression's node (`5` for n5),
    or `_` and the node's name."""
    node = expr.node.removesuffix(INNER)
    return node[1:] if _NUMBERED.fullmatch(node) else "_" + re.sub(r"\W", "_", node)


class VariableNames:
    """Gives variables names that are different from each other and from those in `taken`."""

    def __init__(self, taken: Iterable[str] = (), tried: dict[tuple[str, bool], int] | None = None) -> None:
        self.taken = set(taken)
        #: How many suffixes of a base were tried, by whether they are letters.
        self._tried = dict(tried or {})

    def copied(self) -> VariableNames:
        """Returns a copy with the same names; names that are added to the copy are not added to this object."""
        return VariableNames(self.taken, self._tried)

    def new(self, prefix: str, expr: Expr) -> str:
        """Returns a new name and adds it to `taken`: `t5` for the value of n5; `t5a`, `t5b`, … for intermediate values
        inside n5; `t5_1` for the value of n5 at another position; `t_x0` for an input."""
        base, inside = prefix + label(expr), expr.node.endswith(INNER)
        name = base
        while name in self.taken or (inside and name == base):
            number = self._tried[base, inside] = self._tried.get((base, inside), 0) + 1
            name = base + (_letters(number) if inside else f"_{number}")
        self.taken.add(name)
        return name


def _letters(number: int) -> str:
    """Returns suffix number `number`, counted from 1, of the list a, b, …, z, aa, ab, …. Digits are not used, because
    `t5` with the suffix 1 would be `t51`, the name of another node's variable."""
    text = ""
    while number:
        number, letter = divmod(number - 1, len(ascii_lowercase))
        text = ascii_lowercase[letter] + text
    return text


def variables(prefix: str, exprs: Iterable[Expr]) -> dict[int, str]:
    """Returns a dict from the `id` of each of `exprs` to its variable name; all names differ. An expression that occurs
    twice gets a new name the second time, and another expression may then get its first name."""
    names: dict[int, str] = {}
    for expr in exprs:
        names[id(expr)] = VariableNames(names.values()).new(prefix, expr)
    return names
