"""Builds a LoopNest from a LoopProgram: loops in the order [outer O][reduced R][inner I], and the index of each load
and store as a function of these loops."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import takewhile

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import (
    Axes,
    Axis,
    Expr,
    Index,
    Load,
    PrefixScan,
    Reduce,
    Window,
    children,
    resolve,
    resolve_index,
)
from kernel_assistant.generator.ir.labels import variables
from kernel_assistant.generator.ir.sizes import Size, mul, multiple_of, product
from kernel_assistant.generator.lower.lower import LoopProgram, Output, lower
from kernel_assistant.generator.lower.windows import settle, window_axes
from kernel_assistant.records import OpGraph

#: Fewer neighbours than this do not fill an access to memory.
FEWEST_COLUMNS = 8


@dataclass(eq=False, slots=True)
class Access:
    """A load from or a store to element `offset + Σ coefficient·axis + Σ coefficient·term` of `buffer`, if `guard`
    holds."""

    buffer: str
    dtype: str
    index: Index
    offset: Size
    name: str = ""
    terms: tuple[tuple[Size, Expr], ...] = ()
    guard: Expr | None = None

    @property
    def computed(self) -> bool:
        """Whether expressions decide which position the load reads, or whether it reads at all."""
        return bool(self.terms) or self.guard is not None

    def along(self, axes: list[Axis]) -> list[Size]:
        return [self.index.get(axis, 0) for axis in axes]

    def linear(self, axes: list[Axis]) -> Size | None:
        """Returns the stride of the loop that joins `axes`; None if there is no single stride."""
        steps = self.along(axes)
        for position in range(len(axes) - 1):
            if steps[position] != mul(steps[position + 1], axes[position + 1].size):
                return None
        return steps[-1] if steps else 0

    def stepped(self, axes: list[Axis], vec: int) -> bool:
        """Whether the loop that joins `axes` has no single stride, while each `vec` neighbouring iterations of it
        access contiguous elements.
        """
        steps = self.along(axes)
        inside = len(axes) > 1 and steps[-1] == 1 and multiple_of(axes[-1].size, vec)
        return inside and self.linear(axes) is None and all(multiple_of(step, vec) for step in steps[:-1])

    def aligned(self, outer: list[Axis], vec: int) -> bool:
        """Whether the index is a multiple of `vec` at each position of the loops `outer`, while all other loops are at
        0."""
        return multiple_of(self.offset, vec) and all(multiple_of(step, vec) for step in self.along(outer))


@dataclass(eq=False, slots=True)
class LoopNest:
    """The loops of one kernel. `outer`, `reduced` and `inner` are the axes, outermost first, after neighbouring loops
    were joined. `loads` maps the `id` of a Load to its access, `results` the `id` of a Reduce to the variable of its
    result; `varies` has the `id`s of the expressions that vary along `reduced`. `prefix` begins the kernel's function
    names.
    """

    family: str
    program: LoopProgram
    outer: list[Axis]
    reduced: list[Axis]
    inner: list[Axis]
    loads: dict[int, Access] = field(default_factory=dict)
    stores: list[tuple[Access, Output]] = field(default_factory=list)
    varies: set[int] = field(default_factory=set)
    prefix: str = ""
    results: dict[int, str] = field(default_factory=dict)

    def size(self, axes: list[Axis]) -> Size:
        return product([axis.size for axis in axes])

    @property
    def reduces(self) -> list[Reduce]:
        return [expr for expr in self.program.exprs if isinstance(expr, Reduce)]

    def result(self, reduce: Reduce) -> str:
        """Returns the name of the variable that holds a reduction's result."""
        return self.results[id(reduce)]

    @property
    def scans(self) -> list[PrefixScan]:
        return [expr for expr in self.program.exprs if isinstance(expr, PrefixScan)]


def build_nest(graph: OpGraph) -> LoopNest:
    """Builds the loop nest (the loops of one kernel) of a graph. Raises Unsupported with a one-line reason if a single
    nest cannot compute the graph."""
    program = lower(graph)
    if not program.apart:
        return _built(program)
    try:
        return _built(program)
    except Unsupported:
        return _built(lower(graph, apart=False))


def _built(program: LoopProgram) -> LoopNest:
    program = settle(program)
    loops = _reduced_axes(program)
    spine = _spine(program, loops)
    last = max((position for position, axis in enumerate(spine) if axis in loops), default=-1)
    reduced = [axis for axis in spine if axis in loops]
    if reduced:
        outer, inner = [axis for axis in spine[:last] if axis not in loops], list(spine[last + 1 :])
    else:
        outer, inner = in_memory_order(program, spine), []
    nest = LoopNest(_family(program, reduced, inner), program, outer, reduced, inner)
    nest.results = variables("r", nest.reduces)
    _add_accesses(nest)
    _join(nest)
    _mark_varying(nest)
    _check_scans(nest)
    return nest


def in_memory_order(program: LoopProgram, spine: Axes) -> list[Axis]:
    """Returns the loops of an elementwise nest, sorted by the first output's strides, the largest first. Sizes that
    only a call determines count as large."""
    index = resolve_index(program.outputs[0].index)
    if set(index) != set(spine) or any(isinstance(expr, Window) for expr in program.exprs):
        return list(spine)
    return sorted(spine, key=lambda axis: _stride(index[axis]), reverse=True)


def _stride(step: Size) -> int:
    """Returns a number by which strides are compared; each free dimension in a stride counts as 4096."""
    return step if isinstance(step, int) else sum(value * 4096 ** len(key) for key, value in step.terms)


def _reduced_axes(program: LoopProgram) -> set[Axis]:
    sets = [
        frozenset(resolve(expr.axes if isinstance(expr, Reduce) else (expr.axis,)))
        for expr in program.exprs
        if isinstance(expr, Reduce | PrefixScan)
    ]
    if len(set(sets)) > 1:
        raise Unsupported("reductions over different dimensions")
    return set(sets[0]) if sets else set()


def _spine(program: LoopProgram, loops: set[Axis]) -> Axes:
    """Returns all loops of the kernel, outermost first: the axes of a tensor that varies along each of them, an output
    if possible. Raises Unsupported if there is no such tensor."""
    inside, _ = window_axes(program)
    stored = [set(resolve_index(output.index)) for output in program.outputs]
    needed = set(loops).union(*stored)
    for expr in program.exprs:
        if isinstance(expr, Load):
            needed |= set(resolve_index(expr.index))
    full = [shape for shape in program.shapes if set(shape) == needed - inside]
    if not full:
        raise Unsupported("results of shapes that do not share their loops")
    written = [shape for shape in full if set(shape) in stored]
    spine = written[-1] if written else full[0]
    scanned = any(isinstance(expr, PrefixScan) for expr in program.exprs)
    return spine if scanned or (written and not loops) else _as_in_memory(program, spine, loops)


def _as_in_memory(program: LoopProgram, spine: Axes, loops: set[Axis]) -> Axes:
    """Returns the loops of a reduction, outermost first, in the memory order of a tensor that varies along all of them;
    `spine` if there is no such tensor.

    A tensor that is not contiguous along the reduced loops is preferred: neighbouring columns are then read or written
    together, and accesses that are contiguous along reduced loops can be transposed. If the reduced value depends on
    positions, the reduced loops keep their order.
    """
    tensors = [resolve_index(output.index) for output in program.outputs]
    positions = False
    for expr in program.exprs:
        if isinstance(expr, Load):
            positions = positions or not expr.buffer
            if expr.buffer and not expr.terms and expr.guard is None:
                tensors.append(resolve_index(expr.index))
    across: list[list[Axis]] = []
    along: list[list[Axis]] = []
    for index in tensors:
        if set(index) != set(spine) or 1 not in index.values():
            continue
        order = sorted(spine, key=lambda axis: _stride(index[axis]), reverse=True)
        columns = product([axis.size for axis in takewhile(lambda axis: axis not in loops, reversed(order))])
        if columns == 1:
            along.append(order)
        elif not isinstance(columns, int) or columns >= FEWEST_COLUMNS:
            across.append(order)
    if not across and not along:
        return spine
    order = (across or along)[0]
    if positions:
        kept = iter([axis for axis in spine if axis in loops])
        order = [next(kept) if axis in loops else axis for axis in order]
    return tuple(order)


def _family(program: LoopProgram, reduced: list[Axis], inner: list[Axis]) -> str:
    if any(isinstance(expr, PrefixScan) for expr in program.exprs):
        return "scan"
    if not reduced:
        return "window" if any(isinstance(expr, Window) for expr in program.exprs) else "pointwise"
    return "cols" if inner else "rows"


def _add_accesses(nest: LoopNest) -> None:
    seen: dict[object, Access] = {}
    for expr in nest.program.exprs:
        if isinstance(expr, Load):
            index = resolve_index(expr.index)
            terms = tuple((size, id(term)) for size, term in expr.terms)
            key = (expr.buffer, expr.offset, tuple(index.items()), terms, id(expr.guard))
            if key not in seen:
                seen[key] = Access(expr.buffer, expr.dtype, index, expr.offset, "", expr.terms, expr.guard)
            nest.loads[id(expr)] = seen[key]
    for output in nest.program.outputs:
        access = Access(output.name, output.spec.dtype, resolve_index(output.index), output.offset)
        nest.stores.append((access, output))
    used: dict[str, int] = {}
    for access in (*seen.values(), *(access for access, _ in nest.stores)):
        base = access.buffer or "at"
        number = used[base] = used.get(base, -1) + 1
        access.name = f"{base}_{number}" if number else base


def accesses(nest: LoopNest) -> list[Access]:
    return [*dict.fromkeys(nest.loads.values()), *(access for access, _ in nest.stores)]


def _join(nest: LoopNest) -> None:
    """Joins two neighbouring loops into one wherever every access has a single stride along both."""
    all_accesses = accesses(nest)
    if nest.family == "pointwise":
        loops = _joined(nest.outer, all_accesses)
        nest.outer, nest.inner = loops[:-1], loops[-1:]
        return
    if nest.family == "window":
        _, fixed = window_axes(nest.program)
        axes = _joined(nest.outer, all_accesses, fixed)
        nest.outer, nest.inner = axes[:-1], axes[-1:]
        return
    nest.outer, nest.reduced, nest.inner = (
        _joined(axes, all_accesses) for axes in (nest.outer, nest.reduced, nest.inner)
    )


def _joined(axes: list[Axis], all_accesses: list[Access], fixed: AbstractSet[Axis] = frozenset()) -> list[Axis]:
    result: list[Axis] = []
    for axis in axes:
        last = result[-1] if result else None
        if (
            last is not None
            and not fixed & {last, axis}
            and all(access.index.get(last, 0) == mul(access.index.get(axis, 0), axis.size) for access in all_accesses)
        ):
            both = Axis(mul(last.size, axis.size))
            for access in all_accesses:
                access.index.pop(last, None)
                step = access.index.pop(axis, 0)
                if step != 0:
                    access.index[both] = step
            result[-1] = both
        else:
            result.append(axis)
    return result


def _mark_varying(nest: LoopNest) -> None:
    """Adds to `nest.varies` the expressions that vary along the reduced loops (without any: along the inner loop)."""
    loops = set(nest.reduced) or set(nest.inner)
    for expr in nest.program.exprs:
        if isinstance(expr, Load):
            varying = any(axis in loops for axis in nest.loads[id(expr)].index)
            varying = varying or any(id(child) in nest.varies for child in children(expr))
        elif isinstance(expr, PrefixScan | Window):
            varying = True
        else:
            varying = not isinstance(expr, Reduce) and any(id(arg) in nest.varies for arg in getattr(expr, "args", ()))
        if varying:
            nest.varies.add(id(expr))


def _check_scans(nest: LoopNest) -> None:
    if not nest.scans:
        return
    if len(nest.reduced) > 1:
        raise Unsupported("a scan of a joined dimension")
    if nest.inner and nest.reduces:
        raise Unsupported("a scan of columns after a reduction")
    if len({scan.reverse for scan in nest.scans}) > 1:
        raise Unsupported("scans in both directions")
    behind: set[int] = set()
    for expr in nest.program.exprs:
        args: tuple[Expr, ...] = (expr.arg,) if isinstance(expr, Reduce | PrefixScan) else getattr(expr, "args", ())
        if any(id(arg) in behind for arg in args):
            if isinstance(expr, Reduce | PrefixScan):
                raise Unsupported("a scan or a reduction of a scan")
            behind.add(id(expr))
        if isinstance(expr, PrefixScan):
            behind.add(id(expr))
