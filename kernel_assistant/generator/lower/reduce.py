"""Building blocks of operators that reduce over axes: sums, means, moments and sums of exponentials."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.generator.ir.expr import (
    Axes,
    Const,
    Expr,
    Op,
    PrefixScan,
    Reduce,
    TensorExpr,
    Window,
    ordered,
    resolve,
)
from kernel_assistant.generator.ir.sizes import Size
from kernel_assistant.generator.lower.context import Context, dim_size
from kernel_assistant.generator.lower.movement.views import dimension
from kernel_assistant.generator.lower.moving import move
from kernel_assistant.generator.lower.numbers import converted
from kernel_assistant.generator.lower.positions import Position
from kernel_assistant.records.graph import Operand

#: In shorter rows a function of one more element, beside vectors of them, counts.
LONG_ENOUGH = 256
#: Functions of an instruction or two.
QUICK = ("ka_square", "ka_max", "ka_min", "ka_abs", "ka_relu", "ka_clamp")


def op(text: str, *args: Expr) -> Expr:
    return Op(args[0].ctype, text, args)


def number(expr: Expr, value: float | Size) -> Expr:
    return Const(expr.ctype, value)


def places_of(context: Context, operand: Operand, rank: int) -> list[int]:
    """Returns the indices of the dimensions that `operand` lists, sorted; None or an empty list means all `rank`
    dimensions."""
    if operand is None or operand == []:
        return list(range(rank))
    items = operand if isinstance(operand, list) else [operand]
    return sorted(dimension(context, item, rank) for item in items)


def axes_of(value: TensorExpr, dims: list[int]) -> Axes:
    return tuple(axis for dim in dims for axis in value.dims[dim])


def reduced_dims(value: TensorExpr, dims: list[int], keep: bool) -> tuple[Axes, ...]:
    kept = [() if dim in dims else axes for dim, axes in enumerate(value.dims)]
    return tuple(axes for dim, axes in enumerate(kept) if keep or dim not in dims)


def reduce_over(kind: str, arg: Expr, axes: Axes, joint: tuple[str, Expr, Reduce] | None = None) -> Expr:
    """Returns the reduction `kind` of `arg` over `axes`; without axes, `arg` itself."""
    return Reduce(arg.ctype, kind, arg, axes, joint) if axes else arg


def mean_of(expr: Expr, axes: Axes) -> Expr:
    return op("{0} / {1}", reduce_over("sum", expr, axes), number(expr, dim_size(axes)))


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean and Σ(x - mean)² over axes. The exact mean is `mean` + `rest`: `rest` is what `mean` loses when it is
    rounded to its dtype. `rest` is None if the values are not summed as differences from the first of their row."""

    mean: Expr
    rest: Expr | None
    squares: Expr

    def centred(self, expr: Expr, scale: Expr) -> Expr:
        """Returns (expr - mean) · scale, with the exact mean. Subtracting `rest` costs nothing where products and sums
        are fused."""
        if self.rest is None:
            return op("({0} - {1}) * {2}", expr, self.mean, scale)
        return op("({0} - {1}) * {2} - {3}", expr, self.mean, scale, op("{0} * {1}", self.rest, scale))


def moments(expr: Expr, axes: Axes) -> Moments:
    """Returns the moments of `expr` over `axes`: mean and Σ(x - mean)². One pass can compute both.

    Values are summed as differences from the first one of their row, so that no digits are lost if the mean is much
    larger than the deviations (Chan, Golub, LeVeque, "Algorithms for Computing the Sample Variance", 1983): the error
    of float32 sums of values near 1e5 may exceed that of the mean. The error of the squares that comes from rounding
    the mean is corrected: Σ(x - mean)² = Σ(x - mean - rest)² + n·rest².
    """
    first, count = first_of(expr, axes), number(expr, dim_size(axes))
    if first is None:
        total = reduce_over("sum", expr, axes)
        mean = op("{0} / {1}", total, count)
        return Moments(mean, None, _squares(expr, mean, expr, total, axes))
    apart = op("{0} - {1}", expr, first)
    total = Reduce(expr.ctype, "sum", apart, axes)
    step = op("{0} / {1}", total, count)
    mean = op("{0} + {1}", first, step)
    rest = op("{0} - ({1} - {2})", step, mean, first)
    squares = op("{0} - {1} * ka_square({2})", _squares(expr, mean, apart, total, axes), count, rest)
    return Moments(mean, rest, op("ka_max({0}, {1})", squares, number(expr, 0)))


def _squares(expr: Expr, mean: Expr, summed: Expr, total: Expr, axes: Axes) -> Expr:
    joint = ("m2", summed, total) if isinstance(total, Reduce) else None
    return reduce_over("sum", op("ka_square({0} - {1})", expr, mean), axes, joint)


def first_of(expr: Expr, axes: Axes) -> Expr | None:
    """Returns the value of `expr` at the first position along `axes`. Returns None if computing it would cost as much
    as a short row, if `expr` contains a scan or a window, or if there is at most one position.
    """
    inside = ordered([expr])
    if dim_size(axes) in (0, 1) or any(isinstance(part, PrefixScan | Window) for part in inside):
        return None
    size = dim_size(axes)
    if isinstance(size, int) and size < LONG_ENOUGH and any(_slow(part) for part in inside):
        return None
    for axis in resolve(axes):
        expr = move(expr, (axis,), Position())
    return expr


def _slow(expr: Expr) -> bool:
    return isinstance(expr, Op) and "ka_" in expr.text and not expr.text.startswith(QUICK)


def exponentials(expr: Expr, axes: Axes) -> tuple[Expr, Expr, Expr]:
    """Returns m = max x, exp(x - m) and Σ exp(x - m), with maximum and sum over `axes`."""
    top = reduce_over("max", expr, axes)
    power = op("ka_exp({0} - {1})", expr, top)
    joint = ("sumexp", expr, top) if isinstance(top, Reduce) else None
    return top, power, reduce_over("sum", power, axes, joint)


def computed(context: Context) -> TensorExpr:
    """Returns the node's first argument, converted to the dtype in which the operator computes."""
    value = context.value(context.node.args[0])
    dtype = context.node.spec.dtype
    return TensorExpr(converted(value, dtype), value.dims, dtype)
