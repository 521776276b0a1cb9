"""Building blocks of operators that reduce: sums, means, moments, exponentials over axes."""

from __future__ import annotations

from kernel_assistant.generator.ir.expr import Axes, Const, Expr, Op, Reduce, TensorExpr
from kernel_assistant.generator.ir.sizes import Size
from kernel_assistant.generator.lower.context import Context, dim_size
from kernel_assistant.generator.lower.movement.views import dimension
from kernel_assistant.generator.lower.numbers import converted
from kernel_assistant.records.graph import Operand


def op(text: str, *args: Expr) -> Expr:
    return Op(args[0].ctype, text, args)


def number(expr: Expr, value: float | Size) -> Expr:
    return Const(expr.ctype, value)


def places_of(context: Context, operand: Operand, rank: int) -> list[int]:
    """The reduced dimensions; none or an empty list mean all."""
    if operand is None or operand == []:
        return list(range(rank))
    items = operand if isinstance(operand, list) else [operand]
    return sorted(dimension(context, item, rank) for item in items)


def axes_of(value: TensorExpr, places: list[int]) -> Axes:
    return tuple(axis for place in places for axis in value.dims[place])


def reduced_dims(value: TensorExpr, places: list[int], keep: bool) -> tuple[Axes, ...]:
    kept = [() if place in places else axes for place, axes in enumerate(value.dims)]
    return tuple(axes for place, axes in enumerate(kept) if keep or place not in places)


def reduce_over(kind: str, arg: Expr, axes: Axes, joint: tuple[str, Expr, Reduce] | None = None) -> Expr:
    """A reduction over `axes`; without axes it is the argument itself."""
    return Reduce(arg.ctype, kind, arg, axes, joint) if axes else arg


def mean_of(expr: Expr, axes: Axes) -> Expr:
    return op("{0} / {1}", reduce_over("sum", expr, axes), number(expr, dim_size(axes)))


def moments(expr: Expr, axes: Axes) -> tuple[Expr, Expr]:
    """Mean and Σ(x - mean)²; one pass can compute the second together with the sum."""
    total = reduce_over("sum", expr, axes)
    mean = op("{0} / {1}", total, number(expr, dim_size(axes)))
    joint = ("m2", expr, total) if isinstance(total, Reduce) else None
    return mean, reduce_over("sum", op("ka_square({0} - {1})", expr, mean), axes, joint)


def exponentials(expr: Expr, axes: Axes) -> tuple[Expr, Expr, Expr]:
    """max x, exp(x - max), and the sum of these exponentials."""
    top = reduce_over("max", expr, axes)
    power = op("ka_exp({0} - {1})", expr, top)
    joint = ("sumexp", expr, top) if isinstance(top, Reduce) else None
    return top, power, reduce_over("sum", power, axes, joint)


def computed(context: Context) -> TensorExpr:
    """The first argument, converted to the type in which the operator computes."""
    value = context.value(context.node.args[0])
    dtype = context.node.spec.dtype
    return TensorExpr(converted(value, dtype), value.dims, dtype)
