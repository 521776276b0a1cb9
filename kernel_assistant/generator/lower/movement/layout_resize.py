"""Lowers resizing (`upsample`): nearest, and linear along one to three dimensions. Positions and weights are computed
in float32, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import Axes, Const, Expr, Op, TensorExpr
from kernel_assistant.generator.ir.sizes import parse_size
from kernel_assistant.generator.lower.context import Context, dim_size
from kernel_assistant.generator.lower.movement.layout import along, new_axes
from kernel_assistant.generator.lower.moving import move
from kernel_assistant.generator.lower.positions import Position, integer, whole
from kernel_assistant.records.graph import Operand

Lowering = Callable[[Context], TensorExpr]


def _sizes(context: Context, value: TensorExpr, dims: int) -> list[tuple[int, int, int]]:
    """Returns (dimension, input size, output size) for each of the last `dims` dimensions, which are resized. Raises
    Unsupported if a size depends on free dimensions."""
    sizes = []
    for dim in range(len(value.dims) - dims, len(value.dims)):
        old, new = dim_size(value.dims[dim]), parse_size(context.node.spec.shape[dim])
        if not isinstance(old, int) or not isinstance(new, int):
            raise Unsupported(f"{context.node.op} of dimensions of free size")
        sizes.append((dim, old, new))
    return sizes


def _factors(operand: Operand, dims: int) -> list[float | None]:
    """Returns the scale factor for each of `dims` dimensions; None for a dimension for which the node gives none."""
    items = operand if isinstance(operand, list) else [operand] * dims
    return [float(item) if isinstance(item, int | float) else None for item in items]


def _nearest(dims: int, exact: bool) -> Lowering:
    def lower(context: Context) -> TensorExpr:
        value = context.value(context.node.args[0])
        resized = list(value.dims)
        expr = value.expr
        factors = _factors(context.argument(2, "scale_factors"), dims)
        for (dim, old, new), factor in zip(_sizes(context, value, dims), factors, strict=True):
            if new == old and not (exact and factor):
                continue
            axes = value.dims[dim]
            if not axes:
                resized[dim] = new_axes(new)
            elif new % old == 0 and factor in (None, new / old):
                resized[dim] = axes + new_axes(new // old)
            else:
                resized[dim] = new_axes(new)
                scale = 1 / factor if factor else old / new
                expr = move(expr, axes, Position(term=_nearest_at(resized[dim], scale, old, exact)))
        return context.result(expr, tuple(resized))

    return lower


def _nearest_at(axes: Axes, scale: float, size: int, exact: bool) -> Expr:
    at = _real("((float){0} + 0.5f)" if exact else "(float){0}", along(axes))
    below = integer("(int64_t)ka_floor({0} * {1})", at, Const("float", scale))
    return integer("ka_min({0}, {1})", below, whole(size - 1))


def _linear(dims: int) -> Lowering:
    def lower(context: Context) -> TensorExpr:
        value, corners = context.value(context.node.args[0]), bool(context.argument(2, "align_corners", False))
        resized = list(value.dims)
        expr = value.expr
        factors = _factors(context.argument(3, "scale_factors"), dims)
        sizes = _sizes(context, value, dims)
        # The last dimension first: its two neighbours are next to each other in memory.
        for (dim, old, new), factor in reversed(list(zip(sizes, factors, strict=True))):
            if not value.dims[dim]:
                resized[dim] = new_axes(new)
            elif old != new or factor not in (None, 1.0):
                resized[dim] = new_axes(new)
                expr = _mixed(expr, value.dims[dim], _linear_at(resized[dim], old, new, factor, corners), old)
        return context.result(expr, tuple(resized))

    return lower


def _linear_at(axes: Axes, old: int, new: int, factor: float | None, corners: bool) -> Expr:
    """Returns the position in the input, a real number from 0 on, from which the output at position `axes` is
    interpolated."""
    if corners:
        scale = (old - 1) / (new - 1) if new > 1 else 0.0
        return _real("((float){0} * {1})", along(axes), Const("float", scale))
    scale = 1 / factor if factor else old / new
    return _real("ka_max({1} * ((float){0} + 0.5f) - 0.5f, 0.0f)", along(axes), Const("float", scale))


def _mixed(expr: Expr, axes: Axes, at: Expr, size: int) -> Expr:
    below = integer("ka_min((int64_t){0}, {1})", at, whole(size - 1))
    above = integer("ka_min({0} + 1, {1})", below, whole(size - 1))
    share = _real("({0} - (float){1})", at, below)
    left, right = (move(expr, axes, Position(term=index)) for index in (below, above))
    return Op(expr.ctype, f"((1 - {{2}}) * {{0}} + ({expr.ctype}){{2}} * {{1}})", (left, right, share))


def _real(text: str, *args: Expr) -> Expr:
    return Op("float", text, args)


RESIZING: dict[str, Lowering] = {
    **{f"upsample_nearest{dims}d": _nearest(dims, exact=False) for dims in (1, 2, 3)},
    **{f"_upsample_nearest_exact{dims}d": _nearest(dims, exact=True) for dims in (1, 2, 3)},
    "upsample_linear1d": _linear(1),
    "upsample_bilinear2d": _linear(2),
    "upsample_trilinear3d": _linear(3),
}
