"""Lowers operators that split and reorder dimensions: repeating, unfolding, shuffling."""

from __future__ import annotations

from collections.abc import Callable

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import Axis, Const, Expr, Index, TensorExpr
from kernel_assistant.generator.ir.sizes import Size, parse_size, size_of
from kernel_assistant.generator.lower.context import Context, dim_size, regroup
from kernel_assistant.generator.lower.movement.layout import new_axes
from kernel_assistant.generator.lower.movement.views import dimension
from kernel_assistant.generator.lower.moving import move
from kernel_assistant.generator.lower.positions import Position, both, iota, select, within
from kernel_assistant.records.graph import Operand

Lowering = Callable[[Context], TensorExpr]


def _repeat(context: Context) -> TensorExpr:
    value, counts = context.value(context.node.args[0]), context.node.args[1]
    times: list[Size] = [size_of(count) for count in counts] if isinstance(counts, list) else []
    rank = len(context.node.spec.shape)
    dims = (*((),) * (rank - len(value.dims)), *value.dims)
    times = [*[1] * (rank - len(times)), *times]
    return context.result(value.expr, tuple((*new_axes(count), *axes) for count, axes in zip(times, dims, strict=True)))


def _repeat_interleave(context: Context) -> TensorExpr:
    value, count = context.value(context.node.args[0]), context.node.args[1]
    if not context.node.op.endswith("self_int") or not isinstance(count, int):
        raise Unsupported(f"{context.node.op} by {count!r}")
    dim = context.argument(2, "dim")
    if dim is None:
        return context.result(value.expr, (tuple(axis for axes in value.dims for axis in axes) + new_axes(count),))
    index = dimension(context, dim, len(value.dims))
    return context.result(
        value.expr, (*value.dims[:index], value.dims[index] + new_axes(count), *value.dims[index + 1 :])
    )


def _unfold(context: Context) -> TensorExpr:
    value = context.value(context.node.args[0])
    dim = dimension(context, context.node.args[1], len(value.dims))
    step = context.node.args[3]
    if not isinstance(step, int):
        raise Unsupported(f"unfold by {step!r}")
    shape = [parse_size(size) for size in context.node.spec.shape]
    out, inside = new_axes(shape[dim]), new_axes(shape[-1])
    index: Index = {**dict.fromkeys(out, step), **dict.fromkeys(inside, 1)}
    expr = move(value.expr, value.dims[dim], Position(index)) if value.dims[dim] else value.expr
    return context.result(expr, (*value.dims[:dim], out, *value.dims[dim + 1 :], inside))


def _im2col(context: Context) -> TensorExpr:
    value = context.value(context.node.args[0])
    kernel, dilation, padding, stride = (
        _pair(context.node.args[position]) if position < len(context.node.args) else (default, default)
        for position, default in enumerate((0, 1, 0, 1), 1)
    )
    expr, columns, rows = value.expr, list[Axis](), list[Axis]()
    guards: Expr | None = None
    for number, position in enumerate((-2, -1)):
        size = dim_size(value.dims[position])
        if not isinstance(size, int):
            raise Unsupported("unfold of dimensions of free size")
        k, d, p, s = kernel[number], dilation[number], padding[number], stride[number]
        inside, out = new_axes(k), new_axes((size + 2 * p - d * (k - 1) - 1) // s + 1)
        index: Index = {**dict.fromkeys(out, s), **dict.fromkeys(inside, d)}
        guard = within(iota(index, -p), size) if p else None
        guards = both(guards, guard)
        expr = move(expr, value.dims[position], Position(index, -p, guard=guard)) if value.dims[position] else expr
        rows += inside
        columns += out
    if guards is not None:
        expr = select(guards, expr, Const(expr.ctype, 0))
    dims = (*value.dims[:-3], (*value.dims[-3], *rows), tuple(columns))
    return context.result(expr, dims)


def _pair(operand: Operand) -> tuple[int, int]:
    items = operand if isinstance(operand, list) else [operand, operand]
    numbers = [item for item in items if isinstance(item, int)] * (2 // max(len(items), 1))
    if len(numbers) != 2:
        raise Unsupported(f"unfold by {operand!r}")
    return numbers[0], numbers[1]


def _pixel_shuffle(context: Context) -> TensorExpr:
    value, by = context.value(context.node.args[0]), _number(context)
    channels, height, width = value.dims[-3:]
    out = dim_size(channels)
    if not isinstance(out, int):
        raise Unsupported("pixel_shuffle of a free number of channels")
    groups, rows, columns = regroup((channels,), (out // (by * by), by, by))
    return context.result(value.expr, (*value.dims[:-3], groups, height + rows, width + columns))


def _pixel_unshuffle(context: Context) -> TensorExpr:
    value, by = context.value(context.node.args[0]), _number(context)
    channels, height, width = value.dims[-3:]
    halves = []
    for axes in (height, width):
        size = dim_size(axes)
        if not isinstance(size, int):
            raise Unsupported("pixel_unshuffle of dimensions of free size")
        halves.append(regroup((axes,), (size // by, by)))
    (high, rows), (wide, columns) = halves
    return context.result(value.expr, (*value.dims[:-3], channels + rows + columns, high, wide))


def _channel_shuffle(context: Context) -> TensorExpr:
    value, groups = context.value(context.node.args[0]), _number(context)
    channels = dim_size(value.dims[1])
    if not isinstance(channels, int):
        raise Unsupported("channel_shuffle of a free number of channels")
    outer, inner = regroup((value.dims[1],), (groups, channels // groups))
    return context.result(value.expr, (value.dims[0], inner + outer, *value.dims[2:]))


def _number(context: Context) -> int:
    number = context.node.args[1]
    if not isinstance(number, int):
        raise Unsupported(f"{context.node.op} by {number!r}")
    return number


RESHAPING: dict[str, Lowering] = {
    **dict.fromkeys(("repeat", "tile"), _repeat),
    "repeat_interleave": _repeat_interleave,
    "unfold": _unfold,
    "im2col": _im2col,
    "pixel_shuffle": _pixel_shuffle,
    "pixel_unshuffle": _pixel_unshuffle,
    **dict.fromkeys(("channel_shuffle", "native_channel_shuffle"), _channel_shuffle),
}
