"""Decides after lowering which windows (poolings, depthwise convolutions) remain loops, and which are unrolled to a
chain of loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_assistant.generator.ir.expr import (
    INNER,
    Axis,
    Expr,
    Index,
    Load,
    PrefixScan,
    Reduce,
    Window,
    named_inside,
    ordered,
    resolve,
    resolve_index,
)
from kernel_assistant.generator.lower.moving import chain, longest
from kernel_assistant.generator.lower.positions import Rewriter
from kernel_assistant.generator.lower.spans import positions

if TYPE_CHECKING:
    from kernel_assistant.generator.lower.lower import LoopProgram

#: Fewer neighbours than this make no vectors.
FEWEST_NEIGHBOURS = 8


def settle(program: LoopProgram) -> LoopProgram:
    """Unrolls the windows that cannot be loops: windows inside other reductions, and windows whose axes were split by
    views. Windows whose unrolled loads are vectors (see `_beside`) are unrolled too. Changes `program` and returns it.
    """
    windows = [expr for expr in program.exprs if isinstance(expr, Window)]
    if not windows:
        return program
    reduces = any(isinstance(expr, Reduce | PrefixScan) for expr in program.exprs)
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
    """Whether to unroll a window because its loads are then vectors: elements that are neighbours in memory have the
    same position in all dimensions of the window (channels last). False if the window has more than `longest(window)`
    positions.
    """
    moved: set[Axis] = set()
    for span in window.spans:
        moved |= set(resolve((span.source, span.out)))
    # Weights are few: they may be read across. What is the same at all positions of a window is read once.
    taps = {span.tap for span in window.spans}
    loads = [expr for expr in ordered([window.arg]) if isinstance(expr, Load) and expr.buffer]
    read = [load.index for load in loads if not taps & set(load.index) and moved & _axes(load)]
    for index in (*read, *outputs):
        inner = next((axis for axis, step in resolve_index(index).items() if step == 1), None)
        short = inner is not None and isinstance(inner.size, int) and inner.size < FEWEST_NEIGHBOURS
        if inner is None or inner in moved or short:
            return False
    return positions(window) <= longest(window)


def _axes(load: Load) -> set[Axis]:
    """Returns the axes on which the position of a load depends."""
    inside = ordered([term for _, term in load.terms])
    indices = (load.index, *(expr.index for expr in inside if isinstance(expr, Load)))
    return {axis for index in indices for axis in resolve_index(index)}


class _Chains(Rewriter):
    def __init__(self, kept: set[int]) -> None:
        super().__init__()
        self.kept = kept

    def window(self, window: Window) -> Expr:
        if id(window) in self.kept:
            return super().window(window)
        expr = self.walk(chain(window))
        expr.node = expr.node or window.node
        named_inside(expr, window.node.removesuffix(INNER), {})
        return expr


def window_axes(program: LoopProgram) -> tuple[set[Axis], set[Axis]]:
    """Returns the resolved axes inside windows (sources and taps), and the resolved axes of the windows' outputs."""
    inside: set[Axis] = set()
    outside: set[Axis] = set()
    for expr in program.exprs:
        for span in expr.spans if isinstance(expr, Window) else ():
            inside |= {*resolve((span.source,)), *((span.tap,) if span.tap else ())}
            outside |= set(resolve((span.out,)))
    return inside, outside
