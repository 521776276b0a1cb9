"""Determines the properties of a loop nest that the search for schedules needs: loop sizes, memory traffic, vector
width and more. Free dimensions have their base sizes, those with which the graph was traced."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernel_assistant.generator.ir.expr import Axis, Window, children
from kernel_assistant.generator.ir.sizes import size_value
from kernel_assistant.generator.loops.nest import LoopNest, accesses
from kernel_assistant.generator.loops.passes import Passes, plan_passes
from kernel_assistant.generator.print.cpu.common import costly
from kernel_assistant.generator.print.cuda.group import VectorLayout, make_layout, stands_still
from kernel_assistant.generator.print.cuda.sweeps import read_again
from kernel_assistant.generator.print.cuda.transposed import runs_along
from kernel_assistant.records.graph import DTYPE_BYTES


@dataclass(frozen=True, slots=True)
class LoopShape:
    """What a search needs to know of a loop nest, which is one kernel. `family` is its kind: pointwise, rows, cols,
    scan or window. `outer`, `reduced` and `inner` are the iterations of its loops at the base sizes; R is the reduced
    loop, and a pass is one run over R.

    `row_bytes` is the number of bytes that all loads along R read for one position of R. `copied_bytes` counts only the
    loads that both the first pass and later passes need. `written_bytes` are the bytes of all outputs. `vec` is the
    number of elements of a vector access of up to 16 bytes; 1 if the layout permits none. `kept` is the largest number
    of values that are kept for later passes at the same time, and `passes` the number of passes over R. `costly` says
    that some values that later passes read are expensive to recompute; `static`, that R has a known length; `shifted`,
    that rows begin at unaligned addresses; `reverse`, that a scan runs from the end; `turned`, that some accesses of a
    column reduction are contiguous along R. `positions` is the number of elements that a window reads, and `overlap` is
    how many neighbouring windows read the same element: the positions over the product of the strides. Each is the
    largest of all windows, 0 without windows.
    """

    family: str
    outer: int
    reduced: int
    inner: int
    row_bytes: int
    copied_bytes: int
    written_bytes: int
    vec: int
    kept: int
    passes: int
    costly: bool
    static: bool
    shifted: bool
    reverse: bool
    turned: bool = False
    positions: int = 0
    overlap: float = 0.0


def measure(nest: LoopNest, dims: dict[str, int]) -> LoopShape:
    def value(axes: list[Axis]) -> int:
        return size_value(nest.size(axes), dims)

    # Positions are never kept: they have no buffer.
    plan = plan_passes(nest, lambda expr: getattr(expr, "buffer", "x") != "")
    vec, shifted = _vector(nest)
    outer, reduced, inner = value(nest.outer), value(nest.reduced), value(nest.inner)
    along = [
        access for access in accesses(nest) if access.buffer and any(axis in access.index for axis in nest.reduced)
    ]
    windows = [expr for expr in nest.program.exprs if isinstance(expr, Window)]
    written = 0
    for access, output in nest.stores:
        axes = [*nest.outer, *nest.reduced, *nest.inner]
        count = value([axis for axis in axes if axis in access.index])
        written += count * DTYPE_BYTES[output.spec.dtype]
    return LoopShape(
        family=nest.family,
        outer=outer,
        reduced=reduced,
        inner=inner,
        row_bytes=sum(
            DTYPE_BYTES[a.dtype]
            for a in along
            if not a.buffer.startswith("out") and not stands_still(a, nest.reduced, vec)
        ),
        copied_bytes=sum(DTYPE_BYTES[a.dtype] for a in read_again(nest, plan_passes(nest))),
        written_bytes=written,
        vec=vec,
        kept=_live(plan),
        passes=len(plan.passes),
        costly=bool(plan_passes(nest, costly).kept),
        static=isinstance(nest.size(nest.reduced), int),
        shifted=shifted,
        reverse=any(scan.reverse for scan in nest.scans),
        turned=nest.family == "cols" and bool(runs_along(nest, _columns(nest, vec))),
        positions=max(map(_positions, windows), default=0),
        overlap=max(
            (_positions(window) / math.prod(span.stride for span in window.spans) for window in windows), default=0.0
        ),
    )


def _positions(window: Window) -> int:
    return math.prod(span.size for span in window.spans)


def _columns(nest: LoopNest, vec: int) -> VectorLayout:
    return make_layout(nest, nest.inner, [*nest.outer, *nest.reduced], vec, 0, shiftable=False)


def _live(plan: Passes) -> int:
    """Returns the largest number of values that are kept at the same time, for each position of the reduced loop,
    because a later pass over this loop reads them."""
    last: dict[int, int] = {}
    for number, part in enumerate(plan.passes):
        read = [*part.body, *part.reduces]
        last.update((id(child), number) for expr in read for child in children(expr))
        last.update((id(output.expr), number) for _, output in part.stores)
    born = {id(expr): number for number, part in enumerate(plan.passes) for expr in part.kept}
    return max((sum(born[at] < after <= last[at] for at in born) for after in range(1, len(plan.passes))), default=0)


def _vector(nest: LoopNest) -> tuple[int, bool]:
    """Returns the number of elements of a vector access, which is at most 16 bytes of the widest dtype, and whether
    rows begin unaligned.
    """
    rows = bool(nest.reduced) and not nest.inner
    axes = nest.reduced if rows else nest.inner
    # Indices of a gather that stand still along the vector do not count.
    moved = [
        DTYPE_BYTES[access.dtype]
        for access in accesses(nest)
        if access.buffer and access.index and (access.dtype != "i64" or any(axis in access.index for axis in axes))
    ]
    vec = min(8, 16 // max(moved, default=4))
    outer = nest.outer if rows else [*nest.outer, *nest.reduced]
    while vec > 1:
        layout = make_layout(nest, axes, outer, vec, 0, shiftable=rows)
        if layout.vector:
            return vec, layout.shift is not None
        vec //= 2
    return 1, False
