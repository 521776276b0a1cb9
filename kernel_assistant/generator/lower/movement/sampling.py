"""Lowers `affine_grid` and `grid_sample`: reads of two or three dimensions at real positions that another tensor gives.

Positions from -1 to 1 are converted to element positions as in ATen/native/GridSamplerUtils.h. An element outside the
image counts as zero, also for the padding modes that move positions inside, where its weight is zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import COMPUTE, Axes, Const, Expr, Op, TensorExpr
from kernel_assistant.generator.ir.sizes import Size, parse_size
from kernel_assistant.generator.lower.context import Context, broadcast, cast, dim_size
from kernel_assistant.generator.lower.movement.gathers import Lowering
from kernel_assistant.generator.lower.movement.layout import along, new_axes
from kernel_assistant.generator.lower.moving import move
from kernel_assistant.generator.lower.positions import Position, both, integer, select, within

#: `interpolation_mode` and `padding_mode` of the operator.
BILINEAR, NEAREST = 0, 1
ZEROS, BORDER, REFLECTION = range(3)


def _affine_grid(context: Context) -> TensorExpr:
    """Lowers affine_grid: theta [N, D, D + 1], size [N, C, …] → grid [N, …, D]. The last of the D numbers is the
    position along the first spatial dimension.
    """
    theta, corners = context.value(context.node.args[0]), bool(context.argument(2, "align_corners", False))
    ctype = COMPUTE[context.node.spec.dtype]
    dims = [new_axes(parse_size(size)) for size in context.node.spec.shape[1:-1]]
    expr = cast(_column(theta, len(dims)), ctype)
    for column, axes in enumerate(reversed(dims)):
        base = _base(axes, ctype, corners)
        expr = Op(ctype, "({0} * {1} + {2})", (cast(_column(theta, column), ctype), base, expr))
    return context.result(expr, (theta.dims[0], *dims, theta.dims[1]))


def _column(theta: TensorExpr, column: int) -> Expr:
    return move(theta.expr, theta.dims[2], Position(offset=column))


def _base(axes: Axes, ctype: str, corners: bool) -> Expr:
    """Returns the positions of a dimension's elements, scaled to -1 … 1. With `corners` the first element is at -1 and
    the last at 1; without, -1 and 1 are the outer edges of the two elements.
    """
    size = dim_size(axes)
    if not isinstance(size, int):
        raise Unsupported("affine_grid of dimensions of free size")
    steps = max(size - 1, 1) if corners else size
    return Op(ctype, f"(({ctype})(2 * {{0}} - {size - 1}) / {{1}})", (along(axes), Const(ctype, steps)))


def _grid_sample(context: Context) -> TensorExpr:
    """Lowers grid_sample with the arguments (input [N, C, …], grid [N, …, D], interpolation_mode, padding_mode,
    align_corners). Raises Unsupported for bicubic interpolation.
    """
    image, grid = context.value(context.node.args[0]), context.value(context.node.args[1])
    mode, padding = (context.argument(position, "") for position in (2, 3))
    corners = bool(context.argument(4, "align_corners", False))
    if mode not in (BILINEAR, NEAREST) or not isinstance(padding, int):
        raise Unsupported(f"operator {context.node.op}: bicubic")
    ctype, dims = COMPUTE[grid.dtype], image.dims[2:]
    if not all(isinstance(dim_size(axes), int) for axes in dims):
        raise Unsupported(f"operator {context.node.op} of dimensions of free size")
    (batch,) = broadcast(image.dims[:1], grid.dims[:1])
    positions: list[Expr] = []
    for number, axes in enumerate(dims):
        # The last number of a position is that along the first dimension.
        given = cast(move(grid.expr, grid.dims[-1], Position(offset=len(dims) - 1 - number)), ctype)
        positions.append(_place(given, dim_size(axes), padding, corners))
    value = cast(image.expr, COMPUTE[context.node.spec.dtype])
    expr = (_nearest if mode == NEAREST else _mixed)(value, dims, positions)
    return context.result(expr, (batch, image.dims[1], *grid.dims[1:-1]))


def _place(given: Expr, size: Size, padding: int, corners: bool) -> Expr:
    """Converts a position between -1 and 1 to a position in elements. Clamps it to a range that fits an integer, or, if
    the padding is not zeros, to the image."""
    ctype = given.ctype
    assert isinstance(size, int)
    length = Const(ctype, size - 1 if corners else size)
    inside = "(({0} + 1) * {1} / 2)" if corners else "((({0} + 1) * {1} - 1) / 2)"
    position: Expr = Op(ctype, inside, (given, length))
    if padding == REFLECTION:
        position = _reflected(position, size, corners)
    low, high = (-2, size + 1) if padding == ZEROS else (0, size - 1)
    return Op(ctype, "ka_clamp({0}, {1}, {2})", (position, Const(ctype, low), Const(ctype, high)))


def _reflected(position: Expr, size: int, corners: bool) -> Expr:
    """Reflects the position until it is inside the image: at the centres of the outer elements with `corners`, at their
    outer edges without.
    """
    ctype = position.ctype
    span, low = (size - 1, 0.0) if corners else (size, -0.5)
    if span == 0:
        return Const(ctype, 0)
    away = Op(ctype, "ka_abs({0} - {1})", (position, Const(ctype, low)))
    times = Op(ctype, "ka_floor({0} / {1})", (away, Const(ctype, span)))
    rest = Op(ctype, "({0} - {1} * {2})", (away, times, Const(ctype, span)))
    odd = Op("bool", "({0} - 2 * ka_floor({0} / 2) != 0)", (times,))
    back = Op(ctype, "({0} - {1})", (Const(ctype, span), rest))
    return Op(ctype, "({0} + {1})", (select(odd, back, rest), Const(ctype, low)))


def _nearest(value: Expr, dims: Sequence[Axes], positions: Sequence[Expr]) -> Expr:
    """Returns the element at the nearest position; halfway between two elements, the one with the even index."""
    rounded = [integer("(int64_t)ka_round({0})", position) for position in positions]
    return _element(value, dims, rounded)


def _mixed(value: Expr, dims: Sequence[Axes], positions: Sequence[Expr]) -> Expr:
    """Returns the linear interpolation of the elements around the position, two along each dimension."""
    ctype = value.ctype
    below = [Op(position.ctype, "ka_floor({0})", (position,)) for position in positions]
    first = [integer("(int64_t){0}", whole) for whole in below]
    shares = [
        cast(Op(position.ctype, "({0} - {1})", (position, whole)), ctype)
        for position, whole in zip(positions, below, strict=True)
    ]
    second = [integer("({0} + 1)", one) for one in first]
    others = [Op(ctype, "(1 - {0})", (share,)) for share in shares]
    total: Expr | None = None
    # The last dimension changes fastest: its neighbours are next to each other in memory.
    for sides in product((0, 1), repeat=len(dims)):
        part = _element(value, dims, [(first, second)[side][at] for at, side in enumerate(sides)])
        for at, side in enumerate(sides):
            part = Op(ctype, "{0} * {1}", (part, (others, shares)[side][at]))
        total = part if total is None else Op(ctype, "({0} + {1})", (total, part))
    assert total is not None
    return total


def _element(value: Expr, dims: Sequence[Axes], positions: Sequence[Expr]) -> Expr:
    """Returns the element of `value` at integer positions, one for each of `dims`; 0 outside the image."""
    guard: Expr | None = None
    for axes, position in zip(dims, positions, strict=True):
        inside = within(position, dim_size(axes))
        guard = both(guard, inside)
        value = move(value, axes, Position(term=position, guard=inside)) if axes else value
    assert guard is not None
    return select(guard, value, Const(value.ctype, 0))


SAMPLING: dict[str, Lowering] = {
    "affine_grid_generator": _affine_grid,
    **dict.fromkeys(("grid_sampler", "grid_sampler_2d", "grid_sampler_3d"), _grid_sample),
}
