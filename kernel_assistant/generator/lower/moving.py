"""Reads an expression at another position along one of its axes: at affine positions, at computed ones, or under a
condition. A window whose output moves is written out as a chain of loads.
"""

from __future__ import annotations

from dataclasses import replace

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import (
    Axes,
    Axis,
    Expr,
    Load,
    Op,
    PrefixScan,
    Reduce,
    Span,
    Window,
    resolve,
    resolve_index,
)
from kernel_assistant.generator.ir.sizes import add, mul, product
from kernel_assistant.generator.lower.positions import Position, Rewriter, both, integer, iota, select, whole, within
from kernel_assistant.generator.lower.spans import always_inside, neutral, positions, start

#: Longest chain that a window is written out as, without and with weights.
LONGEST, LONGEST_WEIGHTED = 32, 64
JOIN = {"sum": "{0} + {1}", "max": "ka_max({1}, {0})"}


def move(expr: Expr, axes: Axes, place: Position) -> Expr:
    """`expr` read at the position `place` along the dimension that consists of `axes`."""
    parts = resolve(axes)
    if len(parts) == 1:
        return _Move(parts[0], place).walk(expr)
    position = place.expr()
    for number, part in enumerate(parts):
        below = product([axis.size for axis in parts[number + 1 :]])
        digit = position if below == 1 else integer("({0} / {1})", position, whole(below))
        digit = integer("({0} % {1})", digit, whole(part.size)) if number else digit
        expr = _Move(part, Position(term=digit, guard=place.guard)).walk(expr)
    return expr


def behind(expr: Expr, guard: Expr) -> Expr:
    """`expr` computed under a condition. If the condition is false, nothing is read and the value must not be used."""
    return _Behind(guard).walk(expr)


def chain(window: Window) -> Expr:
    """The window as an expression without loops. Raises Unsupported if it has more than `longest` positions."""
    if positions(window) > longest(window):
        raise Unsupported(f"a window of {positions(window)} positions inside another reduction")
    taps: list[tuple[Expr, Expr | None]] = [(window.arg, None)]
    for span in window.spans:
        places = [_place(span, k) for k in range(span.size)]
        taps = [
            (_moved(part, span, place, k), both(guard, place.guard))
            for part, guard in taps
            for k, place in enumerate(places)
        ]
    found: Expr | None = None
    for part, guard in taps:
        if guard is not None:
            part = select(guard, part, neutral(window.kind, window.ctype))
        found = part if found is None else Op(window.ctype, JOIN[window.kind], (found, part))
    assert found is not None
    return found


def _moved(part: Expr, span: Span, place: Position, k: int) -> Expr:
    part = move(part, (span.source,), place)
    return part if span.tap is None else move(part, (span.tap,), Position(offset=k))


def longest(window: Window) -> int:
    """The largest number of positions with which a window is written out."""
    return LONGEST if all(span.tap is None for span in window.spans) else LONGEST_WEIGHTED


def _place(span: Span, k: int) -> Position:
    index, offset = start(span)
    offset = add(offset, span.dilation * k)
    return Position(index, offset, guard=None if always_inside(span) else within(iota(index, offset), span.source.size))


class _Behind(Rewriter):
    def __init__(self, guard: Expr) -> None:
        super().__init__()
        self.guard = guard

    def load(self, load: Load) -> Expr:
        return replace(load, guard=both(load.guard, self.guard)) if load.buffer else load

    def reduce(self, reduce: Reduce) -> Expr:
        return reduce

    def scan(self, scan: PrefixScan) -> Expr:
        return scan

    def window(self, window: Window) -> Expr:
        return window


class _Move(Rewriter):
    def __init__(self, axis: Axis, place: Position) -> None:
        super().__init__()
        self.axis, self.place, self.guard = axis, place, place.guard

    def load(self, load: Load) -> Expr:
        found = super().load(load)
        assert isinstance(found, Load)
        index = resolve_index(found.index)
        coefficient = index.pop(self.axis, 0)
        place = self.place
        if coefficient == 0:
            if load.buffer and place.guard is not None and found.terms != load.terms:
                # The load's computed position depends on the axis: it is only inside the buffer where the guard holds.
                return replace(found, guard=both(found.guard, place.guard))
            return found
        guard = both(found.guard, place.guard) if load.buffer else None
        if place.term is None:
            for axis, step in place.index.items():
                index[axis] = add(index.get(axis, 0), mul(coefficient, step))
            offset = add(found.offset, mul(coefficient, place.offset))
            return replace(found, index=index, offset=offset, guard=guard)
        if load.buffer:
            return replace(found, index=index, terms=(*found.terms, (coefficient, place.term)), guard=guard)
        moved = place.term if coefficient == 1 else integer("{0} * {1}", place.term, whole(coefficient))
        if not index and found.offset == 0:
            return moved
        return integer("({0} + {1})", replace(found, index=index), moved)

    def reduce(self, reduce: Reduce) -> Expr:
        return reduce if self.axis in resolve(reduce.axes) else super().reduce(reduce)

    def scan(self, scan: PrefixScan) -> Expr:
        if resolve((scan.axis,)) == (self.axis,):
            raise Unsupported("a slice of a scan along its own dimension")
        return super().scan(scan)

    def window(self, window: Window) -> Expr:
        if any(self.axis in resolve((span.out,)) for span in window.spans):
            return self.walk(chain(window))
        return super().window(window)
