"""Names the variables of generated kernels after nodes of the graph: `t5` holds the value of n5."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from itertools import count, product
from string import ascii_lowercase

from kernel_assistant.generator.ir.expr import INNER, Expr

#: Inputs, parameters and nodes of a canonical graph, and what is made of them. Other names may be words of C.
CANONICAL = re.compile(r"[xpbn]\d+(?:_\w+)?")
#: A node of a canonical graph, or one of those that replace it.
_NUMBERED = re.compile(r"n\d+(?:_\d+)*")


def label(expr: Expr) -> str:
    """The part of a variable's name after its prefix: the number of the node of `expr`, or `_` and the node's name."""
    node = expr.node.removesuffix(INNER)
    return node[1:] if _NUMBERED.fullmatch(node) else "_" + re.sub(r"\W", "_", node)


def variable(prefix: str, expr: Expr, taken: AbstractSet[str]) -> str:
    """A name that is not `taken`: `t5` for the value of n5; `t5a`, `t5b`, … for intermediate values inside n5; `t5_1`
    for the value of n5 at another position; `t_x0` for an input.
    """
    base, inside = prefix + label(expr), expr.node.endswith(INNER)
    if not inside and base not in taken:
        return base
    ends = _letters() if inside else (f"_{number}" for number in count(1))
    return next(name for end in ends if (name := base + end) not in taken)


def _letters() -> Iterator[str]:
    """Suffixes of names: a, b, …, z, aa, ab, …. Digits would turn a name into that of another node's variable."""
    for length in count(1):
        yield from map("".join, product(ascii_lowercase, repeat=length))


def variables(prefix: str, exprs: Iterable[Expr]) -> dict[int, str]:
    """A different variable name for each of `exprs`, by the `id` of the expression."""
    names: dict[int, str] = {}
    for expr in exprs:
        names[id(expr)] = variable(prefix, expr, set(names.values()))
    return names
