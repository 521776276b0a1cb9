"""Operators whose values follow from sizes alone (arange), and nearest-neighbour enlargement."""

from __future__ import annotations

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import COMPUTE
from kernel_assistant.records.graph import Node
from kernel_assistant_training.teacher.moving.moves import name_of
from kernel_assistant_training.teacher.moving.pull import At, Puller, Rule
from kernel_assistant_training.teacher.text.expressions import ATOM, PRODUCT
from kernel_assistant_training.teacher.text.terms import ZERO, Apply, IndexTerm, Name, Term, offset, wrapped


def _arange(puller: Puller, node: Node, at: At) -> Term:
    """`(float)(j + 1)`."""
    start = node.args[0] if node.op == "arange.start" else 0
    if not isinstance(start, int) or node.op not in ("arange", "arange.start"):
        raise Unsupported(f"{node.op} from {start!r}")
    place, ctype = offset(at[0], puller.named.attribute(start)), COMPUTE[node.spec.dtype]
    if ctype == "int64_t":
        return Name(ctype, place.text, place.level)
    # An operation and not a name, because the value depends on its position.
    return Apply(ctype, f"({ctype}){{0}}", (Name("int64_t", wrapped(place.text, place.level, ATOM)),))


def _nearest(puller: Puller, node: Node, at: At) -> Term:
    """Repeats each element several times along every inner dimension."""
    source = name_of(node.args[0])
    shape, wide, places = puller.shape(source), puller.shape(node.name), list(at)
    for dim in range(2, len(at)):
        size, grown = shape[dim], wide[dim]
        if size == grown:
            continue
        if not isinstance(size, int) or not isinstance(grown, int) or grown % size:
            raise Unsupported(f"{node.op} by no whole number")
        by, place = puller.named.attribute(grown // size), at[dim]
        text = f"{wrapped(place.text, place.level, PRODUCT)} / {by}"
        places[dim] = ZERO if size == 1 else IndexTerm(text, PRODUCT, place.uses)
    return puller.value(source, tuple(places))


MADE: dict[str, Rule] = {"arange": _arange, **{f"upsample_nearest{n}d": _nearest for n in (1, 2, 3)}}
