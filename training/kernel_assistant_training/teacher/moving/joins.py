"""Operators that join, pad, cut or reorder tensors: cat, stack, pad, triangles, shuffles."""

from __future__ import annotations

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import COMPUTE, Const
from kernel_assistant.generator.ir.sizes import Size, divide
from kernel_assistant.generator.print.render import literal
from kernel_assistant.records.graph import Node, Operand
from kernel_assistant_training.teacher.moving.moves import argument, name_of, numbers, replaced
from kernel_assistant_training.teacher.moving.pull import At, Puller, Rule
from kernel_assistant_training.teacher.text.expressions import ATOM, PRODUCT, SUM
from kernel_assistant_training.teacher.text.terms import (
    ZERO,
    Apply,
    IndexTerm,
    Name,
    Term,
    digits,
    flat,
    offset,
    wrapped,
)


def chosen(test: str, then: Term, other: Term) -> Term:
    return Apply(then.ctype, "{0} ? {1} : {2}", (Name("bool", test), then, other), guarded=True)


def cast(term: Term, ctype: str) -> Term:
    return term if term.ctype == ctype else Apply(ctype, f"({ctype}){{0}}", (term,))


def _cat(puller: Puller, node: Node, at: At) -> Term:
    items = node.args[0]
    if not isinstance(items, list):
        raise Unsupported("cat of what is no list")
    dim = puller.dimension(node, argument(node, 1, "dim", 0), len(at))
    place, behind = at[dim], list[Size]()
    parts: list[tuple[str, Term]] = []
    for item in items:
        size = puller.shape(name_of(item))[dim]
        start = _sum(puller, behind)
        own = place if not behind else offset(place, f"-{start}" if " + " not in start else f"-({start})")
        term = puller.value(name_of(item), replaced(at, dim, ZERO if size == 1 else own))
        behind.append(size)
        test = f"{wrapped(place.text, place.level, SUM)} < {_sum(puller, behind)}"
        parts.append((test, cast(term, COMPUTE[node.spec.dtype])))
    return _first_that_holds(parts)


def _sum(puller: Puller, sizes: list[Size]) -> str:
    """D0 + D1, or 2 * D0."""
    counts: dict[str, int] = {}
    for size in sizes:
        text = puller.named.size(size)
        counts[text] = counts.get(text, 0) + 1
    return " + ".join(text if count == 1 else f"{count} * {text}" for text, count in counts.items())


def _first_that_holds(parts: list[tuple[str, Term]]) -> Term:
    found = parts[-1][1]
    for test, term in reversed(parts[:-1]):
        found = chosen(test, term, found)
    return found


def _stack(puller: Puller, node: Node, at: At) -> Term:
    items = node.args[0]
    if not isinstance(items, list):
        raise Unsupported("stack of what is no list")
    dim = puller.dimension(node, argument(node, 1, "dim", 0), len(at))
    text = wrapped(at[dim].text, at[dim].level, SUM)
    ctype = COMPUTE[node.spec.dtype]
    terms = [cast(puller.value(name_of(item), (*at[:dim], *at[dim + 1 :])), ctype) for item in items]
    return _first_that_holds([(f"{text} == {number}", term) for number, term in enumerate(terms)])


def _pad(puller: Puller, node: Node, at: At) -> Term:
    mode = (
        str(argument(node, 2, "mode", "constant")) if node.op.startswith("pad") else _MODES[node.op.partition("_")[0]]
    )
    fill: Operand = 0.0
    if mode == "constant":
        fill = argument(node, 3, "value", 0.0) if node.op.startswith("pad") else argument(node, 2, "value", 0.0)
    source, amounts = name_of(node.args[0]), numbers(node.args[1])
    shape, places, tests = puller.shape(source), list(at), []
    for number in range(len(amounts) // 2):
        before, after = amounts[2 * number : 2 * number + 2]
        dim = len(at) - 1 - number
        if before == after == 0:
            continue
        size = puller.named.size(shape[dim])
        inner = offset(at[dim], puller.named.attribute(before) if before < 0 else f"-{before}")
        if before < 0:
            inner = offset(at[dim], str(-before))
        if mode == "constant":
            tests += [f"ka::inside({inner.text}, {size})"] * (before > 0 or after > 0)
        elif mode == "replicate":
            inner = IndexTerm(f"ka_clamp({inner.text}, 0, {size} - 1)", ATOM, inner.uses)
        elif mode == "reflect":
            inner = IndexTerm(f"ka::mirror({inner.text}, {size})", ATOM, inner.uses)
        else:
            inner = IndexTerm(f"ka::around({inner.text}, {size})", ATOM, inner.uses)
        places[dim] = ZERO if shape[dim] == 1 else inner
    term = puller.value(source, tuple(places))
    if not tests:
        return term
    value = literal(float(fill), term.ctype) if isinstance(fill, int | float) else ""
    if isinstance(fill, float):
        value = puller.named.constant(Const(term.ctype, fill))
    return chosen(" && ".join(tests), term, Name(term.ctype, value))


_MODES = {"constant": "constant", "reflection": "reflect", "replication": "replicate", "circular": "circular"}


def _glu(puller: Puller, node: Node, at: At) -> Term:
    dim = puller.dimension(node, argument(node, 1, "dim", -1), len(at))
    source, half = name_of(node.args[0]), puller.named.size(node.spec.shape[dim])
    left = puller.value(source, at)
    right = puller.value(source, replaced(at, dim, offset(at[dim], half)))
    return Apply(left.ctype, "{0} * ka_sigmoid({1})", (left, right))


def _triangle(sign: str) -> Rule:
    def pull(puller: Puller, node: Node, at: At) -> Term:
        term, diagonal = puller.value(name_of(node.args[0]), at), argument(node, 1, "diagonal", 0)
        if not isinstance(diagonal, int):
            raise Unsupported(f"diagonal {diagonal!r}")
        edge = offset(at[-2], str(diagonal))
        test = f"{wrapped(at[-1].text, at[-1].level, SUM)} {sign} {wrapped(edge.text, edge.level, SUM)}"
        return chosen(test, term, Name(term.ctype, literal(0, term.ctype)))

    return pull


def _pixel_shuffle(puller: Puller, node: Node, at: At) -> Term:
    (by,) = numbers(node.args[1])
    *front, c, h, w = at
    above = [IndexTerm(f"{wrapped(one.text, one.level, PRODUCT)} / {by}", PRODUCT, one.uses) for one in (h, w)]
    inside = [IndexTerm(f"{wrapped(one.text, one.level, PRODUCT)} % {by}", PRODUCT, one.uses) for one in (h, w)]
    return puller.value(name_of(node.args[0]), (*front, flat((c, *inside), ("", str(by), str(by))), *above))


def _pixel_unshuffle(puller: Puller, node: Node, at: At) -> Term:
    (by,) = numbers(node.args[1])
    source = name_of(node.args[0])
    *front, c, h, w = at
    channel, row, column = digits(c, (puller.named.size(puller.shape(source)[-3]), str(by), str(by)))
    places = [flat((above, inside), ("", str(by))) for above, inside in ((h, row), (w, column))]
    return puller.value(source, (*front, channel, *places))


def _channel_shuffle(puller: Puller, node: Node, at: At) -> Term:
    (groups,) = numbers(node.args[1])
    source = name_of(node.args[0])
    each = divide(puller.shape(source)[1], groups)
    if each is None:
        raise Unsupported("groups of different sizes")
    inner, outer = digits(at[1], (puller.named.size(each), str(groups)))
    return puller.value(source, replaced(at, 1, flat((outer, inner), (str(groups), puller.named.size(each)))))


JOINS: dict[str, Rule] = {
    **dict.fromkeys(("cat", "concat"), _cat),
    "stack": _stack,
    **dict.fromkeys(("pad", "constant_pad_nd"), _pad),
    **{f"{mode}_pad{n}d": _pad for mode in ("reflection", "replication") for n in (1, 2, 3)},
    "glu": _glu,
    "tril": _triangle("<="),
    "triu": _triangle(">="),
    "pixel_shuffle": _pixel_shuffle,
    "pixel_unshuffle": _pixel_unshuffle,
    "channel_shuffle": _channel_shuffle,
}
