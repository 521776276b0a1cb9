"""Operators that reduce or scan: softmax family, norms, sums, variance, cumulative sums and products."""

from __future__ import annotations

import math
from collections.abc import Callable

from kernel_assistant.generator.context import Context, broadcast, cast, dim_size, regroup
from kernel_assistant.generator.errors import Unsupported
from kernel_assistant.generator.expr import COMPUTE, Axes, Const, Expr, Op, Reduce, Scan, Value, resolve
from kernel_assistant.generator.extremes import arg_extreme, place_of
from kernel_assistant.generator.losses import LOSSES
from kernel_assistant.generator.sizes import Size, parse_size, product
from kernel_assistant.generator.views import dimension
from kernel_assistant.records.graph import Operand

Lowering = Callable[[Context], Value | tuple[Value, ...]]
EPSILON = {
    "f64": 2.220446049250313e-16,
    "f32": 1.1920928955078125e-07,
    "bf16": 1.1920928955078125e-07,
    "f16": 1.1920928955078125e-07,
}


def _op(text: str, *args: Expr) -> Expr:
    return Op(args[0].ctype, text, args)


def _number(expr: Expr, value: float | Size) -> Expr:
    return Const(expr.ctype, value)


def places_of(context: Context, operand: Operand, rank: int) -> list[int]:
    """The reduced dimensions; none or an empty list mean all."""
    if operand is None or operand == []:
        return list(range(rank))
    items = operand if isinstance(operand, list) else [operand]
    return sorted(dimension(context, item, rank) for item in items)


def _axes(value: Value, places: list[int]) -> Axes:
    return tuple(axis for place in places for axis in value.dims[place])


def _reduced(value: Value, places: list[int], keep: bool) -> tuple[Axes, ...]:
    kept = [() if place in places else axes for place, axes in enumerate(value.dims)]
    return tuple(axes for place, axes in enumerate(kept) if keep or place not in places)


def _reduce(kind: str, arg: Expr, axes: Axes, joint: tuple[str, Expr, Reduce] | None = None) -> Expr:
    """A reduction; over no axes at all it is the argument itself."""
    return Reduce(arg.ctype, kind, arg, axes, joint) if axes else arg


def _mean(expr: Expr, axes: Axes) -> Expr:
    return _op("{0} / {1}", _reduce("sum", expr, axes), _number(expr, dim_size(axes)))


def _moments(expr: Expr, axes: Axes) -> tuple[Expr, Expr]:
    """Mean and Σ(x - mean)²; the second can be had in the same pass as the sum."""
    total = _reduce("sum", expr, axes)
    mean = _op("{0} / {1}", total, _number(expr, dim_size(axes)))
    joint = ("m2", expr, total) if isinstance(total, Reduce) else None
    return mean, _reduce("sum", _op("ka_square({0} - {1})", expr, mean), axes, joint)


def _exponentials(expr: Expr, axes: Axes) -> tuple[Expr, Expr, Expr]:
    """max x, exp(x - max) and the sum of the latter."""
    top = _reduce("max", expr, axes)
    power = _op("ka_exp({0} - {1})", expr, top)
    joint = ("sumexp", expr, top) if isinstance(top, Reduce) else None
    return top, power, _reduce("sum", power, axes, joint)


def _operand(context: Context) -> Value:
    """The first argument, in the type that the operator computes in."""
    value = context.value(context.node.args[0])
    return Value(cast(value.expr, COMPUTE[context.node.spec.dtype]), value.dims, value.dtype)


def _softmax(context: Context) -> Value:
    value = _operand(context)
    axes = _axes(value, places_of(context, context.node.args[1], len(value.dims)))
    _, power, total = _exponentials(value.expr, axes)
    return context.result(_op("{0} * {1}", power, _op("1 / {0}", total)), value.dims)


def _log_softmax(context: Context) -> Value:
    value = _operand(context)
    axes = _axes(value, places_of(context, context.node.args[1], len(value.dims)))
    top, _, total = _exponentials(value.expr, axes)
    return context.result(_op("{0} - {1} - {2}", value.expr, top, _op("ka_log({0})", total)), value.dims)


def _logsumexp(context: Context) -> Value:
    value = _operand(context)
    places = places_of(context, context.node.args[1], len(value.dims))
    top, _, total = _exponentials(value.expr, _axes(value, places))
    expr = _op("(ka_abs({0}) == INFINITY ? {0} : {0} + ka_log({1}))", top, total)
    return context.result(expr, _reduced(value, places, bool(context.argument(2, "keepdim", False))))


def _simple(kind: str, dim_at: int = 1, keep_at: int = 2) -> Lowering:
    def lower(context: Context) -> Value:
        value = _operand(context)
        places = places_of(context, context.argument(dim_at, "dim"), len(value.dims))
        axes = _axes(value, places)
        expr = _mean(value.expr, axes) if kind == "mean" else _reduce(kind, value.expr, axes)
        return context.result(expr, _reduced(value, places, bool(context.argument(keep_at, "keepdim", False))))

    return lower


def _extreme(kind: str) -> Lowering:
    def lower(context: Context) -> Value | tuple[Value, ...]:
        if context.node.op.partition(".")[2] == "other":
            raise Unsupported(f"{context.node.op} of two tensors")
        value = context.value(context.node.args[0])
        places = places_of(context, context.argument(1, "dim"), len(value.dims))
        dims = _reduced(value, places, bool(context.argument(2, "keepdim", False)))
        found = context.result(_reduce(kind, value.expr, _axes(value, places)), dims, value.dtype)
        if not context.node.op.endswith(".dim"):
            return found
        return found, context.result(place_of(kind, value, _axes(value, places)), dims, "i64")

    return lower


def _arg(kind: str) -> Lowering:
    def lower(context: Context) -> Value:
        value = context.value(context.node.args[0])
        places = places_of(context, context.argument(1, "dim"), len(value.dims))
        return arg_extreme(kind, context, value, places, bool(context.argument(2, "keepdim", False)))

    return lower


def _correction(context: Context) -> tuple[Operand, float, bool]:
    """(dims, correction, keepdim) of the var and std overloads."""
    overload = context.node.op.partition(".")[2]
    if overload == "correction":
        found = context.node.kwargs.get("correction", 1)
        correction = float(found) if isinstance(found, int | float) else 1.0
        return context.argument(1, "dim"), correction, bool(context.node.kwargs.get("keepdim", False))
    if overload == "dim":
        return (
            context.argument(1, "dim"),
            float(bool(context.argument(2, "unbiased", True))),
            bool(context.argument(3, "keepdim", False)),
        )
    return None, float(bool(context.argument(1, "unbiased", True))), False


def _variance(root: bool, with_mean: bool) -> Lowering:
    def lower(context: Context) -> Value | tuple[Value, ...]:
        dim, correction, keep = _correction(context)
        value = context.value(context.node.args[0])
        places = places_of(context, dim, len(value.dims))
        axes = _axes(value, places)
        mean, squares = _moments(value.expr, axes)
        below = _op(
            "ka_max({0}, {1})",
            _op("{0} - {1}", _number(mean, dim_size(axes)), _number(mean, correction)),
            _number(mean, 0),
        )
        spread = _op("ka_sqrt({0} / {1})" if root else "{0} / {1}", squares, below)
        dims = _reduced(value, places, keep)
        found = context.result(spread, dims, value.dtype)
        return (found, context.result(mean, dims, value.dtype)) if with_mean else found

    return lower


def _norm(context: Context) -> Value:
    value = _operand(context)
    value = Value(cast(value.expr, COMPUTE[context.node.spec.dtype]), value.dims, value.dtype)
    places = places_of(context, context.argument(2, "dim"), len(value.dims))
    expr = _length(value.expr, _axes(value, places), context.number(1, "ord", 2))
    return context.result(expr, _reduced(value, places, bool(context.argument(3, "keepdim", False))))


def _length(expr: Expr, axes: Axes, order: float) -> Expr:
    """The norm of this order."""
    size = _op("ka_abs({0})", expr)
    if order == 2:
        return _op("ka_sqrt({0})", _reduce("sum", _op("ka_square({0})", expr), axes))
    if order == 1:
        return _reduce("sum", size, axes)
    if math.isinf(order):
        return _reduce("max" if order > 0 else "min", size, axes)
    if order == 0:
        return _reduce("sum", Op(size.ctype, "({0} != 0 ? 1 : 0)", (size,)), axes)
    total = _reduce("sum", _op("ka_pow({0}, {1})", size, _number(size, order)), axes)
    return _op("ka_pow({0}, {1})", total, _number(size, 1 / order))


def _pairwise_distance(context: Context) -> Value:
    left, right = (context.value(context.node.args[place]) for place in (0, 1))
    ctype = COMPUTE[context.node.spec.dtype]
    eps = Const(ctype, context.number(3, "eps", 1e-6))
    apart = _op("({0} - {1} + {2})", cast(left.expr, ctype), cast(right.expr, ctype), eps)
    both = Value(apart, broadcast(left.dims, right.dims), context.node.spec.dtype)
    places = [len(both.dims) - 1]
    expr = _length(apart, _axes(both, places), context.number(2, "p", 2.0))
    return context.result(expr, _reduced(both, places, bool(context.argument(4, "keepdim", False))))


def _affine(
    context: Context, expr: Expr, dims: tuple[Axes, ...], weight: Operand, bias: Operand, place: int | None
) -> Value:
    """expr * weight + bias; `place` is the dimension of a per-channel weight, None where it lines up at the right."""
    shapes = [dims]
    for operand, text in ((weight, "{0} * {1}"), (bias, "{0} + {1}")):
        if operand is None:
            continue
        value = context.value(operand)
        shape = value.dims if place is None else (*value.dims, *((),) * (len(dims) - place - 1))
        expr = _op(text, expr, cast(value.expr, expr.ctype))
        shapes.append(shape)
    return context.result(expr, broadcast(*shapes))


def _normalized(expr: Expr, axes: Axes, eps: float) -> Expr:
    mean, squares = _moments(expr, axes)
    scale = _op("ka_rsqrt({0} / {1} + {2})", squares, _number(expr, dim_size(axes)), _number(expr, eps))
    return _op("({0} - {1}) * {2}", expr, mean, scale)


def _normalized_rank(context: Context) -> int:
    shape = context.node.args[1]
    return len(shape) if isinstance(shape, list) else 1


def _layer_norm(context: Context) -> Value | tuple[Value, ...]:
    value, rank = _operand(context), _normalized_rank(context)
    axes = _axes(value, list(range(len(value.dims) - rank, len(value.dims))))
    expr = _normalized(value.expr, axes, context.number(4, "eps", 1e-5))
    found = _affine(context, expr, value.dims, context.argument(2, "weight"), context.argument(3, "bias"), None)
    return (found,) if context.node.op == "native_layer_norm" else found


def _rms_norm(context: Context) -> Value:
    value, rank = _operand(context), _normalized_rank(context)
    axes = _axes(value, list(range(len(value.dims) - rank, len(value.dims))))
    eps = _number(value.expr, context.number(3, "eps", EPSILON[value.dtype]))
    scale = _op("ka_rsqrt({0} + {1})", _mean(_op("ka_square({0})", value.expr), axes), eps)
    return _affine(context, _op("{0} * {1}", value.expr, scale), value.dims, context.argument(2, "weight"), None, None)


def _group_norm(context: Context) -> Value:
    value, groups = _operand(context), context.node.args[1]
    shape = [parse_size(size) for size in context.node.spec.shape]
    channels = shape[1]
    if not isinstance(groups, int) or not isinstance(channels, int):
        raise Unsupported("group_norm with a free number of channels")
    dims = regroup(value.dims, (shape[0], groups, channels // groups, product(shape[2:])))
    axes = (*dims[2], *dims[3])
    expr = _normalized(value.expr, axes, context.number(4, "eps", 1e-5))
    return _affine(context, expr, value.dims, context.argument(2, "weight"), context.argument(3, "bias"), 1)


def _instance_norm(context: Context) -> Value:
    value = _operand(context)
    if not context.argument(5, "use_input_stats", True):
        raise Unsupported("instance_norm with running statistics")
    axes = _axes(value, list(range(2, len(value.dims))))
    expr = _normalized(value.expr, axes, context.number(7, "eps", 1e-5))
    return _affine(context, expr, value.dims, context.argument(1, "weight"), context.argument(2, "bias"), 1)


def _batch_norm(context: Context) -> Value | tuple[Value, ...]:
    value = _operand(context)
    if context.node.op.endswith(".no_stats"):
        return (_batch_statistics(context, value, 5),)
    if context.node.op == "_native_batch_norm_legit" or (
        context.node.op.startswith("batch_norm") and context.argument(5, "training", False)
    ):
        raise Unsupported("batch_norm in training mode: it changes its running statistics")
    mean, variance = (context.value(context.node.args[place]) for place in (3, 4))
    eps = context.number(7 if context.node.op.startswith("batch_norm") else 6, "eps", 1e-5)
    scale = _op("ka_rsqrt({0} + {1})", variance.expr, _number(variance.expr, eps))
    shape = tuple((*stat.dims, *((),) * (len(value.dims) - 2)) for stat in (mean, variance))
    expr = _op("({0} - {1}) * {2}", value.expr, mean.expr, scale)
    dims = broadcast(value.dims, *shape)
    found = _affine(context, expr, dims, context.argument(1, "weight"), context.argument(2, "bias"), 1)
    return found if context.node.op.startswith("batch_norm") else (found,)


def _batch_statistics(context: Context, value: Value, eps_at: int) -> Value:
    """batch_norm with the statistics of the batch itself, without running ones."""
    axes = _axes(value, [place for place in range(len(value.dims)) if place != 1])
    expr = _normalized(value.expr, axes, context.number(eps_at, "eps", 1e-5))
    return _affine(context, expr, value.dims, context.argument(1, "weight"), context.argument(2, "bias"), 1)


def _scan(kind: str) -> Lowering:
    def lower(context: Context) -> Value:
        value = _operand(context)
        place = dimension(context, context.node.args[1], len(value.dims))
        axes = resolve(value.dims[place])
        if len(axes) > 1:
            raise Unsupported("a scan of a joined dimension")
        if not axes:
            return context.result(value.expr, value.dims)
        return context.result(Scan(value.expr.ctype, kind, value.expr, axes[0]), value.dims)

    return lower


def _cosine_similarity(context: Context) -> Value:
    left, right = (context.value(context.node.args[place]) for place in (0, 1))
    dims = broadcast(left.dims, right.dims)
    both = Value(left.expr, dims, left.dtype)
    places = places_of(context, context.argument(2, "dim", 1), len(dims))
    axes = _axes(both, places)
    bound = _number(left.expr, context.number(3, "eps", 1e-8))
    lengths = [
        _op("ka_max(ka_sqrt({0}), {1})", _reduce("sum", _op("ka_square({0})", side.expr), axes), bound)
        for side in (left, right)
    ]
    dot = _reduce("sum", _op("{0} * {1}", left.expr, right.expr), axes)
    return context.result(_op("{0} / ({1} * {2})", dot, *lengths), _reduced(both, places, False))


REDUCTIONS: dict[str, Lowering] = {
    **dict.fromkeys(("softmax", "_softmax", "_safe_softmax"), _softmax),
    **dict.fromkeys(("log_softmax", "_log_softmax"), _log_softmax),
    "logsumexp": _logsumexp,
    "sum": _simple("sum"),
    "mean": _simple("mean"),
    "prod": _simple("prod"),
    "amax": _simple("max"),
    "amin": _simple("min"),
    "any": _simple("max"),
    "all": _simple("min"),
    "max": _extreme("max"),
    "min": _extreme("min"),
    "var": _variance(False, False),
    "std": _variance(True, False),
    "var_mean": _variance(False, True),
    "std_mean": _variance(True, True),
    "linalg_vector_norm": _norm,
    "norm": _norm,
    "layer_norm": _layer_norm,
    "native_layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    **dict.fromkeys(("batch_norm", "_native_batch_norm_legit_no_training", "_native_batch_norm_legit"), _batch_norm),
    "cumsum": _scan("sum"),
    "cumprod": _scan("prod"),
    "cosine_similarity": _cosine_similarity,
    "pairwise_distance": _pairwise_distance,
    "argmax": _arg("max"),
    "argmin": _arg("min"),
    **LOSSES,
}
