"""Lowers the positions of the largest or smallest element: argmax, argmin, and the indices that max, min, cummax and
cummin return."""

from __future__ import annotations

from kernel_assistant.generator.ir.expr import Axes, Const, Expr, Index, Load, Op, Reduce, TensorExpr
from kernel_assistant.generator.ir.sizes import Size, mul
from kernel_assistant.generator.lower.context import Context, cast

#: Types whose values and a 32-bit position fit one 64-bit key.
SHORT_TYPES = ("f32", "bf16", "f16", "i32", "i16", "i8", "u8", "b1")
#: The largest position that a key holds.
MOST_PLACE = (1 << 32) - 1


def position(axes: Axes) -> Expr:
    """Returns the position along `axes`, flattened in row-major order, as an expression."""
    index: Index = {}
    step: Size = 1
    for axis in reversed(axes):
        index[axis] = step
        step = mul(step, axis.size)
    return Load("int64_t", "", "i64", index)


def place_of(kind: str, value: TensorExpr, axes: Axes) -> Expr:
    """Returns the position along `axes` of the first largest ("max") or smallest ("min") element, or of the first NaN
    if there is one."""
    if not axes:
        return Const("int64_t", 0)
    expr = cast(value.expr, "int64_t") if value.expr.ctype == "bool" else value.expr
    if value.dtype not in SHORT_TYPES:
        best = Reduce(expr.ctype, kind, expr, axes)
        nan = "" if expr.ctype == "int64_t" else " || {0} != {0}"
        there = f"({{0}} == {{1}}{nan} ? {{2}} : INT64_MAX)"
        return Reduce("int64_t", "min", Op("int64_t", there, (expr, best, position(axes))), axes)
    key = Op("int64_t", "ka_key({0}, {1})", (_ascending(kind, expr), position(axes)))
    return Op("int64_t", "ka_key_place({0})", (Reduce("int64_t", "max", key, axes),))


def last_key(kind: str, expr: Expr, axes: Axes) -> Expr:
    """Returns an integer key for each element. The largest key belongs to the last position of the largest ("max") or
    smallest ("min") element, where NaN counts as such an element. `last_place` computes the position from this key."""
    return Op("int64_t", f"ka_key({{0}}, {MOST_PLACE} - {{1}})", (_ascending(kind, expr), position(axes)))


def last_place(key: Expr) -> Expr:
    return Op("int64_t", f"{MOST_PLACE} - ka_key_place({{0}})", (key,))


def _ascending(kind: str, expr: Expr) -> Expr:
    """Returns `expr` for "max"; for "min", an expression that is largest where `expr` is smallest."""
    return Op(expr.ctype, "~{0}" if expr.ctype == "int64_t" else "-{0}", (expr,)) if kind == "min" else expr


def arg_extreme(kind: str, context: Context, value: TensorExpr, reduced: list[int], keep: bool) -> TensorExpr:
    """Returns the positions that argmax (kind "max") or argmin ("min") gives for the dimensions `reduced`; for all
    dimensions, the position in the flattened tensor.
    """
    axes = tuple(axis for index in reduced for axis in value.dims[index])
    kept = [() if index in reduced else dim for index, dim in enumerate(value.dims)]
    dims = tuple(dim for index, dim in enumerate(kept) if keep or index not in reduced)
    return context.result(place_of(kind, value, axes), dims, "i64")
