"""Where the largest or smallest element is: argmax, argmin, and max and min along a dimension with their indices."""

from __future__ import annotations

from kernel_assistant.generator.context import Context, cast
from kernel_assistant.generator.expr import Axes, Const, Expr, Index, Load, Op, Reduce, Value
from kernel_assistant.generator.sizes import Size, mul

#: Types whose values and a 32-bit position fit one 64-bit key.
SHORT_TYPES = ("f32", "bf16", "f16", "i32", "i16", "i8", "u8", "b1")


def position(axes: Axes) -> Expr:
    """The position along `axes`, the last one running fastest."""
    index: Index = {}
    step: Size = 1
    for axis in reversed(axes):
        index[axis] = step
        step = mul(step, axis.size)
    return Load("int64_t", "", "i64", index)


def place_of(kind: str, value: Value, axes: Axes) -> Expr:
    """The first position of the largest ("max") or smallest ("min") element; of the first NaN where there is one."""
    if not axes:
        return Const("int64_t", 0)
    expr = cast(value.expr, "int64_t") if value.expr.ctype == "bool" else value.expr
    if value.dtype not in SHORT_TYPES:
        best = Reduce(expr.ctype, kind, expr, axes)
        nan = "" if expr.ctype == "int64_t" else " || {0} != {0}"
        there = f"({{0}} == {{1}}{nan} ? {{2}} : INT64_MAX)"
        return Reduce("int64_t", "min", Op("int64_t", there, (expr, best, position(axes))), axes)
    if kind == "min":
        expr = Op(expr.ctype, "~{0}" if expr.ctype == "int64_t" else "-{0}", (expr,))
    key = Op("int64_t", "ka_key({0}, {1})", (expr, position(axes)))
    return Op("int64_t", "ka_key_place({0})", (Reduce("int64_t", "max", key, axes),))


def arg_extreme(kind: str, context: Context, value: Value, places: list[int], keep: bool) -> Value:
    """The value of argmax (kind "max") or argmin ("min") over `places`; all of them mean the flattened tensor."""
    axes = tuple(axis for place in places for axis in value.dims[place])
    kept = [() if place in places else dim for place, dim in enumerate(value.dims)]
    dims = tuple(dim for place, dim in enumerate(kept) if keep or place not in places)
    return context.result(place_of(kind, value, axes), dims, "i64")
