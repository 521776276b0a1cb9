"""Lowers normalizations: layer, RMS, group, instance and batch norm."""

from __future__ import annotations

from collections.abc import Callable

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import COMPUTE, Axes, Expr, TensorExpr
from kernel_assistant.generator.ir.sizes import parse_size, product
from kernel_assistant.generator.lower.context import Context, broadcast, cast, dim_size, regroup
from kernel_assistant.generator.lower.moving import move
from kernel_assistant.generator.lower.positions import Position, axes_index, integer, iota, whole
from kernel_assistant.generator.lower.reduce import axes_of, computed, mean_of, moments, number, op
from kernel_assistant.records.graph import Operand

Lowering = Callable[[Context], TensorExpr | tuple[TensorExpr, ...]]
EPSILON = {
    "f64": 2.220446049250313e-16,
    "f32": 1.1920928955078125e-07,
    "bf16": 1.1920928955078125e-07,
    "f16": 1.1920928955078125e-07,
}


def _affine(
    context: Context, expr: Expr, dims: tuple[Axes, ...], weight: Operand, bias: Operand, dim: int | None
) -> TensorExpr:
    """Returns expr · weight + bias as the node's result; a weight or bias that is None is left out. `dim` is the
    dimension along which a per-channel weight varies; None if the weight is aligned with the last dimensions.
    """
    shapes = [dims]
    for operand, text in ((weight, "{0} * {1}"), (bias, "{0} + {1}")):
        if operand is None:
            continue
        value = context.value(operand)
        shape = value.dims if dim is None else (*value.dims, *((),) * (len(dims) - dim - 1))
        expr = op(text, expr, cast(value.expr, expr.ctype))
        shapes.append(shape)
    return context.result(expr, broadcast(*shapes))


def _normalized(expr: Expr, axes: Axes, eps: float) -> Expr:
    stats = moments(expr, axes)
    scale = op("ka_rsqrt({0} / {1} + {2})", stats.squares, number(expr, dim_size(axes)), number(expr, eps))
    return stats.centred(expr, scale)


def _normalized_rank(context: Context) -> int:
    shape = context.node.args[1]
    return len(shape) if isinstance(shape, list) else 1


def _layer_norm(context: Context) -> TensorExpr | tuple[TensorExpr, ...]:
    value, rank = computed(context), _normalized_rank(context)
    axes = axes_of(value, list(range(len(value.dims) - rank, len(value.dims))))
    expr = _normalized(value.expr, axes, context.number(4, "eps", 1e-5))
    normalized = _affine(context, expr, value.dims, context.argument(2, "weight"), context.argument(3, "bias"), None)
    return (normalized,) if context.node.op == "native_layer_norm" else normalized


def _rms_norm(context: Context) -> TensorExpr:
    value, rank = computed(context), _normalized_rank(context)
    axes = axes_of(value, list(range(len(value.dims) - rank, len(value.dims))))
    eps = number(value.expr, context.number(3, "eps", EPSILON[value.dtype]))
    scale = op("ka_rsqrt({0} + {1})", mean_of(op("ka_square({0})", value.expr), axes), eps)
    return _affine(context, op("{0} * {1}", value.expr, scale), value.dims, context.argument(2, "weight"), None, None)


def _group_norm(context: Context) -> TensorExpr:
    value, groups = computed(context), context.node.args[1]
    shape = [parse_size(size) for size in context.node.spec.shape]
    channels = shape[1]
    if not isinstance(groups, int) or not isinstance(channels, int):
        raise Unsupported("group_norm with a free number of channels")
    dims = regroup(value.dims, (shape[0], groups, channels // groups, product(shape[2:])))
    axes = (*dims[2], *dims[3])
    expr = _normalized(value.expr, axes, context.number(4, "eps", 1e-5))
    return _affine(context, expr, value.dims, context.argument(2, "weight"), context.argument(3, "bias"), 1)


def _group_moments(context: Context) -> tuple[TensorExpr, ...]:
    """Lowers the first of the two launches of a norm over groups of channels. The node's arguments are (input, groups,
    eps); its results are mean and 1/deviation of each group."""
    value, groups = computed(context), context.node.args[1]
    channels, rest = dim_size(value.dims[1]), product([dim_size(axes) for axes in value.dims[2:]])
    if not isinstance(groups, int) or not isinstance(channels, int):
        raise Unsupported(f"{context.node.op} with a free number of channels")
    dims = regroup(value.dims, (dim_size(value.dims[0]), groups, channels // groups, rest))
    axes = (*dims[2], *dims[3])
    stats = moments(value.expr, axes)
    eps = number(stats.squares, context.number(2, "eps", 1e-5))
    scale = op("ka_rsqrt({0} / {1} + {2})", stats.squares, number(stats.squares, dim_size(axes)), eps)
    return tuple(context.result(expr, dims[:2]) for expr in (stats.mean, scale))


def _by_moments(context: Context) -> TensorExpr:
    """Lowers the second of the two launches of a norm over groups of channels to the normalized values. The node's
    arguments are (mean, 1/deviation, input, groups, weight, bias).
    """
    given, groups = context.value(context.node.args[2]), context.node.args[3]
    value = TensorExpr(cast(given.expr, COMPUTE[context.node.spec.dtype]), given.dims, given.dtype)
    channels = dim_size(value.dims[1])
    if not isinstance(groups, int) or not isinstance(channels, int):
        raise Unsupported(f"{context.node.op} with a free number of channels")
    sides = []
    for position in (0, 1):
        side = context.value(context.node.args[position])
        broadcast(value.dims[:1], side.dims[:1])
        expr = cast(side.expr, value.expr.ctype)
        if groups == channels:
            broadcast(value.dims[1:2], side.dims[1:])
        elif side.dims[1]:
            # The channels stay one loop, so that they can be read as they lie.
            group = integer("({0} / {1})", iota(axes_index(value.dims[1])), whole(channels // groups))
            expr = move(expr, side.dims[1], Position(term=group))
        sides.append(expr)
    expr = op("({0} - {1}) * {2}", value.expr, *sides)
    return _affine(context, expr, value.dims, context.argument(4, "weight"), context.argument(5, "bias"), 1)


def _instance_norm(context: Context) -> TensorExpr:
    value = computed(context)
    if not context.argument(5, "use_input_stats", True):
        return _by_given_statistics(context, value, 3, context.number(7, "eps", 1e-5))
    if context.argument(3, "running_mean") is not None:
        raise Unsupported("instance_norm in training mode: it changes its running statistics")
    axes = axes_of(value, list(range(2, len(value.dims))))
    expr = _normalized(value.expr, axes, context.number(7, "eps", 1e-5))
    return _affine(context, expr, value.dims, context.argument(1, "weight"), context.argument(2, "bias"), 1)


def _batch_norm(context: Context) -> TensorExpr | tuple[TensorExpr, ...]:
    value = computed(context)
    if context.node.op.endswith(".no_stats"):
        return (_batch_statistics(context, value, 5),)
    if context.node.op == "_native_batch_norm_legit" or (
        context.node.op.startswith("batch_norm") and context.argument(5, "training", False)
    ):
        raise Unsupported("batch_norm in training mode: it changes its running statistics")
    eps = context.number(7 if context.node.op.startswith("batch_norm") else 6, "eps", 1e-5)
    normalized = _by_given_statistics(context, value, 3, eps)
    return normalized if context.node.op.startswith("batch_norm") else (normalized,)


def _by_given_statistics(context: Context, value: TensorExpr, position: int, eps: float) -> TensorExpr:
    """Normalizes `value` by the mean and variance, the node's arguments number `position` and `position + 1`."""
    mean, variance = (context.value(context.node.args[at]) for at in (position, position + 1))
    scale = op("ka_rsqrt({0} + {1})", variance.expr, number(variance.expr, eps))
    shape = tuple((*stat.dims, *((),) * (len(value.dims) - 2)) for stat in (mean, variance))
    expr = op("({0} - {1}) * {2}", value.expr, mean.expr, scale)
    dims = broadcast(value.dims, *shape)
    return _affine(context, expr, dims, context.argument(1, "weight"), context.argument(2, "bias"), 1)


def _moving_batch_norm(context: Context) -> tuple[TensorExpr, ...]:
    """Lowers a `batch_norm` that also returns its running statistics. The arguments are (input, weight, bias, running
    mean, running variance, training, momentum, eps); the results are (normalized values, mean and 1/deviation of the
    batch, new running mean, new running variance). In evaluation mode the running statistics stand in for those of the
    batch."""
    value = computed(context)
    momentum, eps = context.number(6, "momentum", 0.1), context.number(7, "eps", 1e-5)
    if not context.argument(5, "training", False):
        normalized = _by_given_statistics(context, value, 3, eps)
        kept = [context.value(context.node.args[index]) for index in (3, 4)]
        return (normalized, *kept, *kept)
    channels = [index for index in range(len(value.dims)) if index != 1]
    axes = axes_of(value, channels)
    batch, count = moments(value.expr, axes), dim_size(axes)
    mean, squares = batch.mean, batch.squares
    deviation = op("ka_rsqrt({0} / {1} + {2})", squares, number(squares, count), number(squares, eps))
    expr = batch.centred(value.expr, deviation)
    normalized = _affine(context, expr, value.dims, context.argument(1, "weight"), context.argument(2, "bias"), 1)
    unbiased = op("{0} / ({1} - 1)", squares, number(squares, count))
    per_channel, moved = (value.dims[1],), []
    for index, now in ((3, mean), (4, unbiased)):
        before = context.value(context.node.args[index])
        old = cast(before.expr, now.ctype)
        expr = op("{0} * {2} + {1} * {3}", old, now, number(now, 1 - momentum), number(now, momentum))
        moved.append(context.result(expr, broadcast(per_channel, before.dims), before.dtype))
    return (normalized, *(context.result(expr, per_channel, moved[0].dtype) for expr in (mean, deviation)), *moved)


def _batch_statistics(context: Context, value: TensorExpr, eps_at: int) -> TensorExpr:
    """Lowers a `batch_norm` that uses the statistics of the batch and has no running statistics. `eps_at` is the
    position of the argument eps."""
    axes = axes_of(value, [dim for dim in range(len(value.dims)) if dim != 1])
    expr = _normalized(value.expr, axes, context.number(eps_at, "eps", 1e-5))
    return _affine(context, expr, value.dims, context.argument(1, "weight"), context.argument(2, "bias"), 1)


NORMALIZATIONS: dict[str, Lowering] = {
    "layer_norm": _layer_norm,
    "native_layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    "ka_group_moments": _group_moments,
    "ka_by_moments": _by_moments,
    **dict.fromkeys(("batch_norm", "_native_batch_norm_legit_no_training", "_native_batch_norm_legit"), _batch_norm),
    "_native_batch_norm_legit_functional": _moving_batch_norm,
}
