"""Lowers losses: elementwise losses with their reduction, and classification losses of rows of class scores."""

from __future__ import annotations

import math
from collections.abc import Callable

from kernel_assistant.generator.ir.expr import COMPUTE, Axes, Const, Expr, Op, Reduce, TensorExpr
from kernel_assistant.generator.ir.literals import as_number
from kernel_assistant.generator.lower.context import Context, broadcast, cast, dim_size
from kernel_assistant.generator.lower.extremes import position
from kernel_assistant.generator.lower.reduce import number, op, reduce_over
from kernel_assistant.records.graph import Operand

Lowering = Callable[[Context], TensorExpr]


def _finish(context: Context, expr: Expr, dims: tuple[Axes, ...], reduction: Operand) -> TensorExpr:
    """Reduces an elementwise loss as `reduction` says: 0 none, 1 mean, 2 sum."""
    if reduction == 0:
        return context.result(expr, dims)
    axes = tuple(axis for dim in dims for axis in dim)
    total = reduce_over("sum", expr, axes)
    if reduction == 1:
        total = op("{0} / {1}", total, number(expr, dim_size(axes)))
    return context.result(total, ())


def _elementwise(
    text: str,
    count: int = 2,
    reduction_at: int = 2,
    numbers: tuple[tuple[int, str, float], ...] = (),
    fixed: int = 1,
) -> Lowering:
    """Returns the lowering of an elementwise loss of `count` tensors that the C text `text` computes. `numbers` has
    (position, name, default) of further arguments of the text. The node's argument number `reduction_at` says how to
    reduce (see `_finish`); `fixed` says it if the node has no such argument.
    """

    def lower(context: Context) -> TensorExpr:
        ctype = COMPUTE[context.node.spec.dtype]
        values = [context.value(operand) for operand in context.node.args[:count]]
        args = [cast(value.expr, ctype) for value in values]
        args += [Const(ctype, context.number(*number)) for number in numbers]
        dims = broadcast(*(value.dims for value in values))
        return _finish(context, op(text, *args), dims, context.argument(reduction_at, "reduction", fixed))

    return lower


def _weighted(text: str, weights: tuple[tuple[int, str], ...], reduction_at: int) -> Lowering:
    """Returns the lowering of a loss of two tensors with optional weights; `weights` has the (position, name) of each.
    The last weight is a factor of the loss; the other weights appear in the C text as {2}, …. A missing weight counts
    as 1. Argument number `reduction_at` says how to reduce (see `_finish`).
    """

    def lower(context: Context) -> TensorExpr:
        ctype = COMPUTE[context.node.spec.dtype]
        operands = [context.argument(index, name) for index, name in weights]
        values = [context.value(operand) for operand in context.node.args[:2]]
        values += [context.value(operand) for operand in operands if operand is not None]
        given = [
            Const(ctype, 1) if operand is None else cast(context.value(operand).expr, ctype) for operand in operands
        ]
        expr = op(text, *(cast(value.expr, ctype) for value in values[:2]), *given[:-1])
        if operands[-1] is not None:
            expr = op("{0} * {1}", expr, given[-1])
        dims = broadcast(*(value.dims for value in values))
        return _finish(context, expr, dims, context.argument(reduction_at, "reduction", 1))

    return lower


def _kl_div(context: Context) -> TensorExpr:
    """Lowers the Kullback-Leibler loss. The reduction `batchmean` does not occur here: the graph has a sum and a
    division for it."""
    if context.argument(3, "log_target", False):
        return _elementwise("ka_exp({1}) * ({1} - {0})")(context)
    return _elementwise("ka_xlogy({1}, {1}) - {1} * {0}")(context)


def _smooth_l1(context: Context) -> TensorExpr:
    if context.number(3, "beta", 1.0) == 0:
        return _elementwise("ka_abs({0} - {1})")(context)
    return _elementwise("ka_smooth_l1({0} - {1}, {2})", numbers=((3, "beta", 1.0),))(context)


def _poisson(context: Context) -> TensorExpr:
    log_input, full = context.argument(2, "log_input", True), context.argument(3, "full", False)
    text = "ka_exp({0}) - {1} * {0}" if log_input else "{0} - {1} * ka_log({0} + {2})"
    if full:
        stirling = f"{{1}} * ka_log({{1}}) - {{1}} + 0.5f * ka_log({2 * math.pi!r}f * {{1}})"
        text = f"({text} + ({{1}} > 1 ? {stirling} : 0))"
    return _elementwise(text, reduction_at=5, numbers=((4, "eps", 1e-8),))(context)


def _class_dims(context: Context) -> tuple[TensorExpr, tuple[Axes, ...], Axes]:
    """Returns the scores, the axes of all their dimensions except the class dimension, and the axes of the class
    dimension."""
    scores = context.value(context.node.args[0])
    dim = 1 if len(scores.dims) > 1 else 0
    rest = tuple(axes for at, axes in enumerate(scores.dims) if at != dim)
    return scores, rest, scores.dims[dim]


def picked(expr: Expr, classes: Axes, target: Expr) -> Expr:
    """Returns the element of `expr` whose position along the axes `classes` equals `target`; 0 if there is no such
    position."""
    if not classes:
        return op("({1} == 0 ? {0} : 0)", expr, target)
    return reduce_over("sum", op("({1} == {2} ? {0} : 0)", expr, position(classes), target), classes)


def _class_loss(context: Context) -> TensorExpr:
    """Lowers `ka_class_loss` to the loss of each row. The node's arguments are (scores, target, weight or None, ignored
    class, smoothing, logarithms).

    `logarithms` is true if the scores are log-probabilities. Targets are class indices, or probabilities of the scores'
    shape.
    """
    scores, rest, classes = _class_dims(context)
    target, ctype = context.value(context.node.args[1]), "double" if scores.dtype == "f64" else "float"
    weight = context.node.args[2]
    ignored, smoothing, logarithms = context.node.args[3:6]
    x = cast(scores.expr, ctype)
    # Weights lie along the classes, which is the only dimension that they share with the scores.
    factor = None
    if weight is not None:
        along = context.value(weight)
        broadcast((classes,), along.dims)
        factor = cast(along.expr, ctype)
    if logarithms:
        top: Expr = number(x, 0)
        log_total: Expr = number(x, 0)
    else:
        top = Reduce(ctype, "max", x, classes) if classes else x
        power = op("ka_exp({0} - {1})", x, top)
        joint = ("sumexp", x, top) if isinstance(top, Reduce) else None
        log_total = op("ka_log({0})", Reduce(ctype, "sum", power, classes, joint) if classes else power)
    if target.dtype[0] == "i" or target.dtype == "u8":
        dims = broadcast(rest, target.dims)
        index = target.expr
        loss = op("{0} - ({1} - {2})", log_total, picked(x, classes, index), top)
        if factor is not None:
            loss = op("{0} * {1}", loss, picked(factor, classes, index))
        if smoothing:
            loss = _smoothed(
                loss, x, factor, classes, op("{0} + {1}", log_total, top), as_number(smoothing, context.node.op)
            )
        loss = Op(ctype, "({1} == {2} ? 0 : {0})", (loss, index, Const("int64_t", as_number(ignored, context.node.op))))
        return context.result(loss, dims)
    broadcast(scores.dims, target.dims)
    share = cast(target.expr, ctype)
    if smoothing:
        rate = as_number(smoothing, context.node.op)
        even = op("{1} / {0}", number(x, dim_size(classes)), number(x, rate))
        share = op("{0} * {1} + {2}", share, number(x, 1 - rate), even)
    if factor is not None:
        share = op("{0} * {1}", share, factor)
    # Σ share·(log total - (x - top)), as two sums that need no value of the other's pass.
    weighted, total = reduce_over("sum", op("{0} * {1}", share, x), classes), reduce_over("sum", share, classes)
    return context.result(op("({0} + {1}) * {2} - {3}", log_total, top, total, weighted), rest)


def _smoothed(loss: Expr, x: Expr, factor: Expr | None, classes: Axes, logsumexp: Expr, rate: float) -> Expr:
    """Returns the label-smoothed loss (1 - rate)·loss + rate/C·Σ weight·(logsumexp - x), where C is the number of
    classes."""
    count = number(x, dim_size(classes))
    if factor is None:
        spread = op("{0} - {1} / {2}", logsumexp, reduce_over("sum", x, classes), count)
    else:
        weighted = reduce_over("sum", op("{0} * {1}", factor, x), classes)
        spread = op("({0} * {1} - {2}) / {3}", logsumexp, reduce_over("sum", factor, classes), weighted, count)
    return op("{0} * {2} + {1} * {3}", loss, spread, number(x, 1 - rate), number(x, rate))


def _class_weight(context: Context) -> TensorExpr:
    """Lowers `ka_class_weight` to the weight of each target: 0 for the ignored class, otherwise the weight of its
    class, or 1 if there are no weights. The node's arguments are (target, weight or None, ignored class).
    """
    target, weight = context.value(context.node.args[0]), context.node.args[1]
    ctype = COMPUTE[context.node.spec.dtype]
    one: Expr = Const(ctype, 1)
    if weight is not None:
        along = context.value(weight)
        one = picked(cast(along.expr, ctype), along.dims[0], target.expr)
        context.shapes.append((*target.dims, along.dims[0]))
    ignored = Const("int64_t", as_number(context.node.args[2], context.node.op))
    return context.result(Op(ctype, "({1} == {2} ? 0 : {0})", (one, target.expr, ignored)), target.dims)


LOSSES: dict[str, Lowering] = {
    "mse_loss": _elementwise("ka_square({0} - {1})"),
    "l1_loss": _elementwise("ka_abs({0} - {1})"),
    "huber_loss": _elementwise("ka_huber({0} - {1}, {2})", numbers=((3, "delta", 1.0),)),
    "smooth_l1_loss": _smooth_l1,
    "kl_div": _kl_div,
    "poisson_nll_loss": _poisson,
    "soft_margin_loss": _elementwise("ka_log1p(ka_exp(-{1} * {0}))"),
    "hinge_embedding_loss": _elementwise(
        "({1} != 1 ? ka_max({2} - {0}, {2} * 0) : 0) + ({1} != -1 ? {0} : 0)",
        reduction_at=3,
        numbers=((2, "margin", 1.0),),
    ),
    "margin_ranking_loss": _elementwise(
        "ka_relu({3} - {2} * ({0} - {1}))", count=3, reduction_at=4, numbers=((3, "margin", 0.0),)
    ),
    "binary_cross_entropy": _weighted("ka_cross_entropy({0}, {1})", ((2, "weight"),), 3),
    "binary_cross_entropy_with_logits": _weighted(
        "(1 - {1}) * {0} + (1 + ({2} - 1) * {1}) * (ka_log1p(ka_exp(-ka_abs({0}))) + ka_relu(-{0}))",
        ((3, "pos_weight"), (2, "weight")),
        4,
    ),
    "ka_by_sign": _elementwise("({2} == 1 ? {0} : ({2} == -1 ? {1} : 0))", count=3, reduction_at=3, fixed=0),
    "ka_class_loss": _class_loss,
    "ka_class_weight": _class_weight,
}
