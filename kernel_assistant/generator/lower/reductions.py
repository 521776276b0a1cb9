"""Lowers operators that reduce or scan: softmax, norms, sums, variance, cumulative sums and products."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import COMPUTE, Axes, Const, Expr, Op, PrefixScan, TensorExpr, resolve
from kernel_assistant.generator.lower.context import Context, broadcast, cast, dim_size
from kernel_assistant.generator.lower.extremes import SHORT_TYPES, arg_extreme, last_key, last_place, place_of
from kernel_assistant.generator.lower.losses import LOSSES
from kernel_assistant.generator.lower.movement.views import dimension
from kernel_assistant.generator.lower.normalization import NORMALIZATIONS
from kernel_assistant.generator.lower.numbers import converted, narrowed
from kernel_assistant.generator.lower.reduce import (
    axes_of,
    computed,
    exponentials,
    mean_of,
    moments,
    number,
    op,
    places_of,
    reduce_over,
    reduced_dims,
)
from kernel_assistant.generator.lower.shared_loops import sharing_loops
from kernel_assistant.records.graph import Operand

Lowering = Callable[[Context], TensorExpr | tuple[TensorExpr, ...]]


def _softmax(context: Context) -> TensorExpr:
    value = computed(context)
    axes = axes_of(value, places_of(context, context.node.args[1], len(value.dims)))
    _, power, total = exponentials(value.expr, axes)
    return context.result(op("{0} * {1}", power, op("1 / {0}", total)), value.dims)


def _log_softmax(context: Context) -> TensorExpr:
    value = computed(context)
    axes = axes_of(value, places_of(context, context.node.args[1], len(value.dims)))
    top, _, total = exponentials(value.expr, axes)
    return context.result(op("{0} - {1} - {2}", value.expr, top, op("ka_log({0})", total)), value.dims)


def _logsumexp(context: Context) -> TensorExpr:
    value = computed(context)
    reduced = places_of(context, context.node.args[1], len(value.dims))
    top, _, total = exponentials(value.expr, axes_of(value, reduced))
    expr = op("(ka_abs({0}) == INFINITY ? {0} : {0} + ka_log({1}))", top, total)
    return context.result(expr, reduced_dims(value, reduced, bool(context.argument(2, "keepdim", False))))


def _simple(kind: str, dim_at: int = 1, keep_at: int = 2) -> Lowering:
    def lower(context: Context) -> TensorExpr:
        value = computed(context)
        reduced = places_of(context, context.argument(dim_at, "dim"), len(value.dims))
        axes = axes_of(value, reduced)
        expr = mean_of(value.expr, axes) if kind == "mean" else reduce_over(kind, value.expr, axes)
        dims = reduced_dims(value, reduced, bool(context.argument(keep_at, "keepdim", False)))
        return context.result(_in_range(kind, expr, context), dims)

    return lower


def _in_range(kind: str, expr: Expr, context: Context) -> Expr:
    """Wraps a sum or product of integers, which is computed in int64_t, to the range of the node's dtype. Returns
    `expr` itself for any other `kind` or dtype.
    """
    return narrowed(expr, "i64", context.node.spec.dtype) if kind in ("sum", "prod") else expr


def _truth(kind: str) -> Lowering:
    """Returns the lowering of any (kind "max") and all ("min"), with truth values as results; for uint8 these are the
    numbers 0 and 1.
    """

    def lower(context: Context) -> TensorExpr:
        value = context.value(context.node.args[0])
        reduced = places_of(context, context.argument(1, "dim"), len(value.dims))
        expr = reduce_over(kind, converted(value, "b1"), axes_of(value, reduced))
        dims = reduced_dims(value, reduced, bool(context.argument(2, "keepdim", False)))
        return context.result(cast(expr, COMPUTE[context.node.spec.dtype]), dims)

    return lower


def _extreme(kind: str) -> Lowering:
    def lower(context: Context) -> TensorExpr | tuple[TensorExpr, ...]:
        if context.node.op.partition(".")[2] == "other":
            raise Unsupported(f"{context.node.op} of two tensors")
        value = context.value(context.node.args[0])
        reduced = places_of(context, context.argument(1, "dim"), len(value.dims))
        dims = reduced_dims(value, reduced, bool(context.argument(2, "keepdim", False)))
        values = context.result(reduce_over(kind, value.expr, axes_of(value, reduced)), dims, value.dtype)
        if not context.node.op.endswith(".dim"):
            return values
        return values, context.result(place_of(kind, value, axes_of(value, reduced)), dims, "i64")

    return lower


def _arg(kind: str) -> Lowering:
    def lower(context: Context) -> TensorExpr:
        value = context.value(context.node.args[0])
        reduced = places_of(context, context.argument(1, "dim"), len(value.dims))
        return arg_extreme(kind, context, value, reduced, bool(context.argument(2, "keepdim", False)))

    return lower


def _correction(context: Context) -> tuple[Operand, float, bool]:
    """Returns (dims, correction, keepdim) of a `var` or `std` node, whichever overload it has. The correction is what
    is subtracted from the number of elements."""
    overload = context.node.op.partition(".")[2]
    if overload == "correction":
        given = context.node.kwargs.get("correction", 1)
        correction = float(given) if isinstance(given, int | float) else 1.0
        return context.argument(1, "dim"), correction, bool(context.node.kwargs.get("keepdim", False))
    if overload == "dim":
        return (
            context.argument(1, "dim"),
            float(bool(context.argument(2, "unbiased", True))),
            bool(context.argument(3, "keepdim", False)),
        )
    return None, float(bool(context.argument(1, "unbiased", True))), False


def _variance(root: bool, with_mean: bool) -> Lowering:
    def lower(context: Context) -> TensorExpr | tuple[TensorExpr, ...]:
        dim, correction, keep = _correction(context)
        value = context.value(context.node.args[0])
        reduced = places_of(context, dim, len(value.dims))
        axes = axes_of(value, reduced)
        stats = moments(value.expr, axes)
        mean = stats.mean
        below = op(
            "ka_max({0}, {1})",
            op("{0} - {1}", number(mean, dim_size(axes)), number(mean, correction)),
            number(mean, 0),
        )
        spread = op("ka_sqrt({0} / {1})" if root else "{0} / {1}", stats.squares, below)
        dims = reduced_dims(value, reduced, keep)
        result = context.result(spread, dims, value.dtype)
        return (result, context.result(mean, dims, value.dtype)) if with_mean else result

    return lower


def _norm(context: Context) -> TensorExpr:
    value = computed(context)
    value = TensorExpr(cast(value.expr, COMPUTE[context.node.spec.dtype]), value.dims, value.dtype)
    reduced = places_of(context, context.argument(2, "dim"), len(value.dims))
    expr = _length(value.expr, axes_of(value, reduced), context.number(1, "ord", 2))
    return context.result(expr, reduced_dims(value, reduced, bool(context.argument(3, "keepdim", False))))


def _length(expr: Expr, axes: Axes, order: float) -> Expr:
    """Returns the vector norm of order `order` over `axes`; the order may also be 0, inf or -inf."""
    size = op("ka_abs({0})", expr)
    if order == 2:
        return op("ka_sqrt({0})", reduce_over("sum", op("ka_square({0})", expr), axes))
    if order == 1:
        return reduce_over("sum", size, axes)
    if math.isinf(order):
        return reduce_over("max" if order > 0 else "min", size, axes)
    if order == 0:
        return reduce_over("sum", Op(size.ctype, "({0} != 0 ? 1 : 0)", (size,)), axes)
    total = reduce_over("sum", op("ka_pow({0}, {1})", size, number(size, order)), axes)
    return op("ka_pow({0}, {1})", total, number(size, 1 / order))


def _pairwise_distance(context: Context) -> TensorExpr:
    left, right = sharing_loops(context, [context.value(context.node.args[position]) for position in (0, 1)])
    ctype = COMPUTE[context.node.spec.dtype]
    eps = Const(ctype, context.number(3, "eps", 1e-6))
    apart = op("({0} - {1} + {2})", cast(left.expr, ctype), cast(right.expr, ctype), eps)
    both = context.result(apart, broadcast(left.dims, right.dims))
    reduced = [len(both.dims) - 1]
    expr = _length(apart, axes_of(both, reduced), context.number(2, "p", 2.0))
    return context.result(expr, reduced_dims(both, reduced, bool(context.argument(4, "keepdim", False))))


def _scan(kind: str) -> Lowering:
    def lower(context: Context) -> TensorExpr:
        value = computed(context)
        return context.result(_in_range(kind, _scanned(context, kind, value), context), value.dims)

    return lower


def _scanned(context: Context, kind: str, value: TensorExpr) -> Expr:
    """Returns the cumulative `kind` (such as sum) of a value along the dimension that the node's second argument names.
    Raises Unsupported if this dimension consists of several loops."""
    axes = resolve(value.dims[dimension(context, context.node.args[1], len(value.dims))])
    if len(axes) > 1:
        raise Unsupported("a scan of a joined dimension")
    return PrefixScan(value.expr.ctype, kind, value.expr, axes[0]) if axes else value.expr


def _extreme_scan(kind: str) -> Lowering:
    """Returns the lowering of cummax (kind "max") and cummin ("min")."""

    def lower(context: Context) -> tuple[TensorExpr, ...]:
        node, value = context.node, context.value(context.node.args[0])
        if value.expr.ctype == "bool":
            raise Unsupported(f"{node.op} of truth values")
        results = [context.result(_scanned(context, kind, value), value.dims, value.dtype)]
        if any(one.op == "getitem" and one.args == (f"%{node.name}", 1) for one in context.graph.nodes):
            if value.dtype not in SHORT_TYPES:
                raise Unsupported(f"positions of {node.op} of {value.dtype}")
            axes = resolve(value.dims[dimension(context, node.args[1], len(value.dims))])
            key = last_key(kind, value.expr, axes)
            scanned = _scanned(context, "max", replace(value, expr=key, dtype="i64"))
            results.append(context.result(last_place(scanned), value.dims, "i64"))
        return tuple(results)

    return lower


SCANS: dict[str, Lowering] = {
    "cumsum": _scan("sum"),
    "cumprod": _scan("prod"),
    "cummax": _extreme_scan("max"),
    "cummin": _extreme_scan("min"),
    "logcumsumexp": _scan("logaddexp"),
}


def _cosine_similarity(context: Context) -> TensorExpr:
    left, right = sharing_loops(context, [context.value(context.node.args[position]) for position in (0, 1)])
    dims = broadcast(left.dims, right.dims)
    both = context.result(left.expr, dims, left.dtype)
    reduced = places_of(context, context.argument(2, "dim", 1), len(dims))
    axes = axes_of(both, reduced)
    bound = number(left.expr, context.number(3, "eps", 1e-8))
    lengths = [
        op("ka_max(ka_sqrt({0}), {1})", reduce_over("sum", op("ka_square({0})", side.expr), axes), bound)
        for side in (left, right)
    ]
    dot = reduce_over("sum", op("{0} * {1}", left.expr, right.expr), axes)
    return context.result(op("{0} / ({1} * {2})", dot, *lengths), reduced_dims(both, reduced, False))


REDUCTIONS: dict[str, Lowering] = {
    **dict.fromkeys(("softmax", "_softmax", "_safe_softmax"), _softmax),
    **dict.fromkeys(("log_softmax", "_log_softmax"), _log_softmax),
    "logsumexp": _logsumexp,
    "sum": _simple("sum"),
    "mean": _simple("mean"),
    "prod": _simple("prod"),
    "amax": _simple("max"),
    "amin": _simple("min"),
    "any": _truth("max"),
    "all": _truth("min"),
    "max": _extreme("max"),
    "min": _extreme("min"),
    "var": _variance(False, False),
    "std": _variance(True, False),
    "var_mean": _variance(False, True),
    "std_mean": _variance(True, True),
    "linalg_vector_norm": _norm,
    "norm": _norm,
    **NORMALIZATIONS,
    **SCANS,
    "cosine_similarity": _cosine_similarity,
    "pairwise_distance": _pairwise_distance,
    "argmax": _arg("max"),
    "argmin": _arg("min"),
    **LOSSES,
}
