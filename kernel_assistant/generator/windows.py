"""Windows after lowering: which stay loops of their own, which are written out as chains of loads."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from kernel_assistant.generator.errors import Unsupported
from kernel_assistant.generator.expr import (
    Axis,
    Const,
    Expr,
    Index,
    Load,
    Op,
    Reduce,
    Scan,
    Span,
    Window,
    ordered,
    resolve,
    resolve_index,
)
from kernel_assistant.generator.positions import Place, Rewriter, both, iota, move, select, within
from kernel_assistant.generator.sizes import Size, add

if TYPE_CHECKING:
    from kernel_assistant.generator.lower import Program

#: Longest chain that a window is written out as.
LONGEST = 32
#: Fewer neighbours than this make no vectors.
FEWEST_NEIGHBOURS = 8
JOIN = {"sum": "{0} + {1}", "max": "ka_max({1}, {0})"}


def neutral(kind: str, ctype: str) -> Expr:
    """What counts for a position outside the tensor."""
    if kind == "sum" or ctype == "bool":
        return Const(ctype, 0)
    return Op(ctype, "INT64_MIN", ()) if ctype == "int64_t" else Const(ctype, float("-inf"))


def reach(span: Span) -> tuple[int, int]:
    """First and last position that any output of a static span looks at."""
    assert isinstance(span.out.size, int)
    last = (span.out.size - 1) * span.stride + (span.size - 1) * span.dilation - span.padding
    return -span.padding, last


def always_inside(span: Span) -> bool:
    """Whether no window of the span leaves the tensor."""
    first, last = reach(span)
    return first >= 0 and isinstance(span.source.size, int) and last < span.source.size


def start(span: Span) -> tuple[Index, Size]:
    """The first position of each output's window, as index and offset."""
    return ({} if span.out.size == 1 else {span.out: span.stride}), -span.padding


def positions(window: Window) -> int:
    count = 1
    for span in window.spans:
        count *= span.size
    return count


def chain(window: Window) -> Expr:
    """The window as an expression without loops."""
    if positions(window) > LONGEST:
        raise Unsupported(f"a window of {positions(window)} positions inside another reduction")
    places = [[_place(span, k) for k in range(span.size)] for span in window.spans]
    found: Expr | None = None
    for chosen in product(*places):
        part, guard = window.arg, None
        for span, place in zip(window.spans, chosen, strict=True):
            part = move(part, (span.source,), place)
            guard = both(guard, place.guard)
        if guard is not None:
            part = select(guard, part, neutral(window.kind, window.ctype))
        found = part if found is None else Op(window.ctype, JOIN[window.kind], (found, part))
    assert found is not None
    return found


def _place(span: Span, k: int) -> Place:
    index, offset = start(span)
    offset = add(offset, span.dilation * k)
    return Place(index, offset, guard=None if always_inside(span) else within(iota(index, offset), span.source.size))


def settle(program: Program) -> Program:
    """Write out the windows that cannot be loops: inside other reductions, and where views took their axes apart."""
    windows = [expr for expr in program.exprs if isinstance(expr, Window)]
    if not windows:
        return program
    reduces = any(isinstance(expr, Reduce | Scan) for expr in program.exprs)
    nested = {id(expr) for outer in windows for expr in ordered([outer.arg]) if isinstance(expr, Window)}
    kept = {id(expr) for expr in windows if not reduces and id(expr) not in nested and _whole(expr)}
    kept -= {id(expr) for expr in windows if _beside(expr, [output.index for output in program.outputs])}
    rewriter = _Chains(kept)
    for output in program.outputs:
        output.expr = rewriter.walk(output.expr)
    program.exprs = ordered([output.expr for output in program.outputs])
    return program


def _whole(window: Window) -> bool:
    return all(len(resolve((axis,))) == 1 for span in window.spans for axis in (span.source, span.out))


def _beside(window: Window, outputs: list[Index]) -> bool:
    """Whether neighbours in memory lie along a dimension that no window moves in (channels last): written out, the
    window's loads are vectors along it."""
    moved: set[Axis] = set()
    for span in window.spans:
        moved |= set(resolve((span.source, span.out)))
    loads = [expr.index for expr in ordered([window.arg]) if isinstance(expr, Load) and expr.buffer]
    for index in (*loads, *outputs):
        inner = next((axis for axis, step in resolve_index(index).items() if step == 1), None)
        short = inner is not None and isinstance(inner.size, int) and inner.size < FEWEST_NEIGHBOURS
        if inner is None or inner in moved or short:
            return False
    return positions(window) <= LONGEST


class _Chains(Rewriter):
    def __init__(self, kept: set[int]) -> None:
        super().__init__()
        self.kept = kept

    def window(self, window: Window) -> Expr:
        return super().window(window) if id(window) in self.kept else self.walk(chain(window))


def window_axes(program: Program) -> tuple[set[Axis], set[Axis]]:
    """The axes inside windows, and those of their outputs, as they are in the end."""
    inside: set[Axis] = set()
    outside: set[Axis] = set()
    for expr in program.exprs:
        for span in expr.spans if isinstance(expr, Window) else ():
            inside |= set(resolve((span.source,)))
            outside |= set(resolve((span.out,)))
    return inside, outside
