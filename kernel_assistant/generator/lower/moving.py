"""Changes an expression so that it reads at another position along one of its axes: an affine position, a computed one,
or one that exists only under a condition. A window whose output axis is replaced is unrolled to loads.
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
    ordered,
    resolve,
    resolve_index,
)
from kernel_assistant.generator.ir.sizes import add, mul, product
from kernel_assistant.generator.lower.positions import Position, Rewriter, both, integer, iota, select, whole, within
from kernel_assistant.generator.lower.spans import always_inside, neutral, positions, start

#: Longest chain that a window is written out as, without and with weights.
LONGEST, LONGEST_WEIGHTED = 32, 64
#: Most loads of an unrolled window with everything inside it. A kernel may have 512, or four for each of its nodes
#: (`loops/checked.py`); to write out thousands before they are refused takes seconds.
MOST_UNROLLED = 2048
JOIN = {"sum": "{0} + {1}", "max": "ka_max({1}, {0})"}


def move(expr: Expr, axes: Axes, target: Position) -> Expr:
    """Returns the value of `expr` at the position `target` of the dimension that consists of `axes`."""
    parts = resolve(axes)
    if len(parts) == 1:
        return _Move(parts[0], target).walk(expr)
    position = target.expr()
    for number, part in enumerate(parts):
        below = product([axis.size for axis in parts[number + 1 :]])
        digit = position if below == 1 else integer("({0} / {1})", position, whole(below))
        digit = integer("({0} % {1})", digit, whole(part.size)) if number else digit
        expr = _Move(part, Position(term=digit, guard=target.guard)).walk(expr)
    return expr


def behind(expr: Expr, guard: Expr) -> Expr:
    """Returns `expr` with its loads under the condition `guard`. Where the condition is false, nothing is read and the
    caller must not use the value. Reductions, scans and windows are not changed."""
    return _Behind(guard).walk(expr)


def chain(window: Window) -> Expr:
    """Unrolls a window (pooling, depthwise convolution) to an expression without loops. Raises Unsupported if the
    window has more than `longest(window)` positions, or over MOST_UNROLLED loads."""
    if positions(window) > longest(window):
        raise Unsupported(f"a window of {positions(window)} positions inside another reduction")
    taps: list[tuple[Expr, Expr | None]] = [(window.arg, None)]
    for span in window.spans:
        targets = [_place(span, k) for k in range(span.size)]
        moved: list[tuple[Expr, Expr | None]] = []
        for part, guard in taps:
            for k, target in enumerate(targets):
                moved.append((_moved(part, span, target, k), both(guard, target.guard)))
                if len(moved) == 1:
                    _check_loads(part, moved[0][0], len(taps) * len(targets))
        taps = moved
    joined: Expr | None = None
    for part, guard in taps:
        if guard is not None:
            part = select(guard, part, neutral(window.kind, window.ctype))
        joined = part if joined is None else Op(window.ctype, JOIN[window.kind], (joined, part))
    assert joined is not None
    return joined


def _moved(part: Expr, span: Span, target: Position, k: int) -> Expr:
    part = move(part, (span.source,), target)
    return part if span.tap is None else move(part, (span.tap,), Position(offset=k))


def _check_loads(before: Expr, after: Expr, copies: int) -> None:
    """Raises Unsupported if `copies` expressions like `after`, which was made from `before`, have over MOST_UNROLLED
    loads of their own."""
    loads = [expr for expr in ordered([after]) if isinstance(expr, Load)]
    if len(loads) * copies <= MOST_UNROLLED:
        return
    shared = {id(expr) for expr in ordered([before])}
    count = sum(id(load) not in shared for load in loads) * copies
    if count > MOST_UNROLLED:
        raise Unsupported(f"{count} loads in one kernel")


def longest(window: Window) -> int:
    """Returns the largest number of positions for which a window is unrolled; it is smaller without weights than with
    them."""
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
    def __init__(self, axis: Axis, target: Position) -> None:
        super().__init__()
        self.axis, self.place, self.guard = axis, target, target.guard

    def load(self, load: Load) -> Expr:
        copied = super().load(load)
        assert isinstance(copied, Load)
        index = resolve_index(copied.index)
        coefficient = index.pop(self.axis, 0)
        target = self.place
        if coefficient == 0:
            if load.buffer and target.guard is not None and copied.terms != load.terms:
                # The load's computed position depends on the axis: it is only inside the buffer where the guard holds.
                return replace(copied, guard=both(copied.guard, target.guard))
            return copied
        guard = both(copied.guard, target.guard) if load.buffer else None
        if target.term is None:
            for axis, step in target.index.items():
                index[axis] = add(index.get(axis, 0), mul(coefficient, step))
            offset = add(copied.offset, mul(coefficient, target.offset))
            return replace(copied, index=index, offset=offset, guard=guard)
        if load.buffer:
            return replace(copied, index=index, terms=(*copied.terms, (coefficient, target.term)), guard=guard)
        moved = target.term if coefficient == 1 else integer("{0} * {1}", target.term, whole(coefficient))
        if not index and copied.offset == 0:
            return moved
        return integer("({0} + {1})", replace(copied, index=index), moved)

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
