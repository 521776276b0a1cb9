"""Prepares operands for `broadcast`, which makes their dimensions the same loops. If one loop would then run along two
dimensions of a tensor (`x + x.T`, `x[:, None] - x[None]`), one operand gets new loops.
"""

from __future__ import annotations

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import Axes, Axis, PrefixScan, Reduce, TensorExpr, Window, ordered, resolve
from kernel_assistant.generator.lower.context import Context
from kernel_assistant.generator.lower.moving import move
from kernel_assistant.generator.lower.positions import Position


def sharing_loops(context: Context, values: list[TensorExpr]) -> list[TensorExpr]:
    """Returns the values, some of them with new loops, so that `broadcast` can make their dimensions the same loops.
    Raises Unsupported if a value that needs new loops contains a reduction, a scan or a window.
    """
    if len(values) < 2:
        return values
    rank = max(len(value.dims) for value in values)
    joined: list[Axes] = [()] * rank
    prepared = []
    for value in values:
        first = rank - len(value.dims)
        if _clashes(context, joined, value, first):
            value = _with_own_loops(value)
        for dim, axes in enumerate(value.dims, first):
            joined[dim] = joined[dim] or axes
        prepared.append(value)
    return prepared


def _clashes(context: Context, joined: list[Axes], value: TensorExpr, first: int) -> bool:
    """Whether `broadcast` would let one loop run along two dimensions of a tensor: because a loop of `value` belongs to
    another dimension of `joined`, or because two loops that would become one belong to the same tensor. The dimensions
    of `value` begin at dimension `first` of `joined`.
    """
    loops = [resolve(axes) for axes in joined]
    for dim, axes in enumerate(value.dims, first):
        own = resolve(axes)
        if any(axis in other for at, other in enumerate(loops) if at != dim for axis in own):
            return True
        if own and loops[dim] and own != loops[dim]:
            mine, theirs = set(own) - set(loops[dim]), set(loops[dim]) - set(own)
            if not mine or not theirs or _met(context, mine, theirs):
                return True
    return False


def _met(context: Context, one: set[Axis], other: set[Axis]) -> bool:
    """Whether some tensor varies both along an axis of `one` and along an axis of `other`."""
    for dims in context.shapes:
        axes = {axis for dim in dims for axis in resolve(dim)}
        if axes & one and axes & other:
            return True
    return False


def _with_own_loops(value: TensorExpr) -> TensorExpr:
    if any(isinstance(expr, Reduce | PrefixScan | Window) for expr in ordered([value.expr])):
        raise Unsupported("one tensor read along two different dimensions at once")
    expr, dims = value.expr, []
    for axes in value.dims:
        own = resolve(axes)
        fresh = tuple(Axis(axis.size) for axis in own)
        for axis, new in zip(own, fresh, strict=True):
            expr = move(expr, (axis,), Position({new: 1}))
        dims.append(fresh)
    return TensorExpr(expr, tuple(dims), value.dtype)
