"""Names of variables after the nodes of the graph, so that a reader of the graph knows them."""

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
    """The end of the names of variables that belong to the node of `expr`: its number, or `_` and its name."""
    node = expr.node.removesuffix(INNER)
    return node[1:] if _NUMBERED.fullmatch(node) else "_" + re.sub(r"\W", "_", node)


def variable(prefix: str, expr: Expr, taken: AbstractSet[str]) -> str:
    """A name that is not `taken`: `t5` for node n5, `t5a`, `t5b`, … for values inside of it, `t5_1` for a copy, `t_x0`
    for an input.
    """
    base, inside = prefix + label(expr), expr.node.endswith(INNER)
    if not inside and base not in taken:
        return base
    ends = _letters() if inside else (f"_{number}" for number in count(1))
    return next(name for end in ends if (name := base + end) not in taken)


def _letters() -> Iterator[str]:
    """a, b, …, z, aa, ab, …: never a digit, behind which the number of another node would stand."""
    for length in count(1):
        yield from map("".join, product(ascii_lowercase, repeat=length))


def variables(prefix: str, exprs: Iterable[Expr]) -> dict[int, str]:
    """A different name for each of `exprs`."""
    found: dict[int, str] = {}
    for expr in exprs:
        found[id(expr)] = variable(prefix, expr, set(found.values()))
    return found
