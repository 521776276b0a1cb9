"""Lowers max pooling with indices, and adaptive pooling whose windows differ in size. Both are fully unrolled: the
expression has a load for each position of a window, and no loop."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import Axes, Expr, Op, Span
from kernel_assistant.generator.lower.moving import JOIN, LONGEST, move
from kernel_assistant.generator.lower.positions import Position, both, condition, integer, iota, select, whole, within
from kernel_assistant.generator.lower.spans import always_inside, neutral, start

#: A position of one dimension: what moves an expression there, and the position itself.
Step = tuple[Position, Expr]


def _limited(name: str, steps: Sequence[Sequence[Step]]) -> list[tuple[Step, ...]]:
    """Returns all combinations of one step (position) per dimension; the last dimension changes fastest. Raises
    Unsupported, with `name` in the message, if there are more than LONGEST."""
    positions = list(product(*steps))
    if len(positions) > LONGEST:
        raise Unsupported(f"{name} over {len(positions)} positions")
    return positions


def _moved(expr: Expr, dims: Sequence[Axes], steps: tuple[Step, ...]) -> tuple[Expr, Expr | None]:
    """Returns `expr` at one position of the window, and the condition under which this position exists (None:
    always)."""
    guard: Expr | None = None
    for axes, (position, _) in zip(dims, steps, strict=True):
        expr = move(expr, axes, position) if axes else expr
        guard = both(guard, position.guard)
    return expr, guard


def largest_with_index(expr: Expr, dims: Sequence[Axes], spans: Sequence[Span]) -> tuple[Expr, Expr]:
    """Returns the maximum of each window and its position in the flattened dimensions. The first of equal elements
    wins; NaN counts as the largest.
    """
    steps = [[_step(span, k) for k in range(span.size)] for span in spans]
    return _largest(expr, dims, spans, steps, [_first(span) for span in spans])


def largest_of_uneven(expr: Expr, dims: Sequence[Axes], spans: Sequence[Span]) -> tuple[Expr, Expr]:
    """Does the same as `largest_with_index` for windows of adaptive pooling, which differ in size (see `uneven`)."""
    steps, _ = _uneven_steps(spans)
    return _largest(expr, dims, spans, steps, [some[0][1] for some in steps])


def _largest(
    expr: Expr, dims: Sequence[Axes], spans: Sequence[Span], steps: Sequence[Sequence[Step]], first: Sequence[Expr]
) -> tuple[Expr, Expr]:
    """Returns the maximum over the positions `steps` and its position in the flattened dimensions; the position is
    `first` if no element is larger than -inf."""
    best, index = neutral("max", expr.ctype), _flat(first, spans)
    for chosen in _limited("indices of maxima", steps):
        value, guard = _moved(expr, dims, chosen)
        more = condition("({0} > {1} || {0} != {0})", value, best)
        taken = both(guard, more)
        assert taken is not None
        best = select(taken, value, best)
        index = select(taken, _flat([at for _, at in chosen], spans), index)
    return best, index


def _step(span: Span, k: int) -> Step:
    index, offset = start(span)[0], k * span.dilation - span.padding
    at = iota(index, offset)
    return Position(index, offset, guard=None if always_inside(span) else within(at, span.source.size)), at


def _first(span: Span) -> Expr:
    """Returns the first position of a window that is inside the tensor."""
    begin, dilation = iota(*start(span)), whole(span.dilation)
    return integer("({0} < 0 ? {0} + (-{0} + {1} - 1) / {1} * {1} : {0})", begin, dilation)


def _flat(positions: Sequence[Expr], spans: Sequence[Span]) -> Expr:
    index = positions[0]
    for position, span in zip(positions[1:], spans[1:], strict=True):
        index = integer("({0} * {1} + {2})", index, whole(span.source.size), position)
    return index


def uneven(kind: str, expr: Expr, dims: Sequence[Axes], spans: Sequence[Span]) -> tuple[Expr, Expr]:
    """Lowers adaptive pooling: the window of output o goes from ⌊o·in/out⌋ to ⌈(o+1)·in/out⌉. Returns the reduced
    values, and the number of positions of each window.
    """
    steps, count = _uneven_steps(spans)
    reduced: Expr | None = None
    for chosen in _limited("adaptive pooling", steps):
        value, guard = _moved(expr, dims, chosen)
        assert guard is not None
        value = select(guard, value, neutral(kind, expr.ctype))
        reduced = value if reduced is None else Op(expr.ctype, JOIN[kind], (reduced, value))
    assert reduced is not None
    return reduced, count


def _uneven_steps(spans: Sequence[Span]) -> tuple[list[list[Step]], Expr]:
    """Returns the positions of adaptive pooling's windows in each dimension, and the number of those of a window."""
    steps, count = list[list[Step]](), whole(1)
    for span in spans:
        size, out = span.source.size, span.out.size
        assert isinstance(size, int) and isinstance(out, int)
        at = iota({span.out: 1}) if out > 1 else whole(0)
        begin = integer("({0} * {1} / {2})", at, whole(size), whole(out))
        length = integer("((({0} + 1) * {1} + {2} - 1) / {2} - {3})", at, whole(size), whole(out), begin)
        most = max(-(-(o + 1) * size // out) - o * size // out for o in range(out))
        positions = [integer("({0} + {1})", begin, whole(k)) for k in range(most)]
        tests = [condition("({0} > {1})", length, whole(k)) for k in range(most)]
        steps.append([(Position(term=p, guard=t), p) for p, t in zip(positions, tests, strict=True)])
        count = integer("({0} * {1})", count, length)
    return steps, count
