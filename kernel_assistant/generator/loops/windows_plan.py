"""Plans a loop nest with windows (poolings and depthwise convolutions): which values are computed once before a window,
at each position inside it, and once for each output."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import Axis, Const, Expr, Load, Span, Window, children, ordered, resolve
from kernel_assistant.generator.loops.nest import Access, LoopNest
from kernel_assistant.generator.loops.passes import below
from kernel_assistant.generator.lower.lower import Output


@dataclass(slots=True)
class WindowBody:
    """The work of one window: the values `steady` are computed before it, the values `body` at each of its positions.

    `last` is the span (dimension of the window) whose outputs the inner loop visits, None if there is none. `spans` are
    the other spans in the order of the loops, with the axes of the final nest.
    """

    number: int
    window: Window
    spans: list[Span]
    last: Span | None
    steady: list[Expr]
    body: list[Expr]

    @property
    def count(self) -> int:
        """The number of positions of one window."""
        total = 1
        for span in (*self.spans, *([self.last] if self.last else [])):
            total *= span.size
        return total


@dataclass(slots=True)
class WindowPlan:
    """The windows of a nest (`parts`), then the values that are computed from them at each output: `steady` has those
    that do not vary along the inner loop, `body` those that do.
    """

    parts: list[WindowBody]
    steady: list[Expr]
    body: list[Expr]
    stores: list[tuple[Access, Output]]


def plan_windows(nest: LoopNest) -> WindowPlan:
    """Decides for each value of a nest with windows where it is computed: before a window, at each position of it, or,
    for values that use the windows' results, once before the inner loop over outputs or at each output. Raises
    Unsupported if the nest has a single output element."""
    if not nest.inner:
        raise Unsupported("a window with a single output")
    windows = [expr for expr in nest.program.exprs if isinstance(expr, Window)]
    inner = set(nest.inner)
    parts = [_part(nest, number, window, inner) for number, window in enumerate(windows)]
    after = _after([output.expr for _, output in nest.stores])
    moving = varying(after, nest, inner)
    body = [expr for expr in after if id(expr) in moving]
    return WindowPlan(parts, [expr for expr in after if id(expr) not in moving], body, nest.stores)


def _part(nest: LoopNest, number: int, window: Window, inner: set[Axis]) -> WindowBody:
    spans = [replace(span, source=resolve((span.source,))[0], out=resolve((span.out,))[0]) for span in window.spans]
    order = {axis: position for position, axis in enumerate([*nest.outer, *nest.inner])}
    spans.sort(key=lambda span: order.get(span.out, -1))
    exprs = [expr for expr in ordered([window.arg]) if not isinstance(expr, Const)]
    taps = {span.tap for span in spans if span.tap is not None}
    moving = varying(exprs, nest, inner | taps | {span.source for span in spans})
    last = next((span for span in spans if span.out in inner), None)
    return WindowBody(
        number,
        window,
        [span for span in spans if span is not last],
        last,
        [expr for expr in exprs if id(expr) not in moving],
        [expr for expr in exprs if id(expr) in moving],
    )


def _after(roots: list[Expr]) -> list[Expr]:
    """Returns the expressions that are computed at each output from windows and loads, in order; arguments of windows
    are left out."""
    seen = below(roots, until=Window)
    return [expr for expr in ordered(roots) if id(expr) in seen and not isinstance(expr, Const | Window)]


def varying(exprs: list[Expr], nest: LoopNest, axes: AbstractSet[Axis | None]) -> set[int]:
    """Returns the `id`s of those of `exprs` that vary along `axes` or are computed from a window."""
    ids: set[int] = set()
    for expr in exprs:
        along = isinstance(expr, Load) and any(axis in axes for axis in nest.loads[id(expr)].index)
        below = any(id(child) in ids or isinstance(child, Window) for child in children(expr))
        if along or below:
            ids.add(id(expr))
    return ids
