"""Simplifies a nest: equal expressions become one, and known sizes are used."""

from __future__ import annotations

from collections.abc import Mapping

from kernel_assistant.generator.ir.expr import Const, Expr, Load, Op, Reduce
from kernel_assistant.generator.ir.sizes import Poly, size_value, symbols_of
from kernel_assistant.generator.loops.nest import LoopNest

#: What a variance is divided by: a number of elements less one or none, and not below zero.
LESS, AT_LEAST = "{0} - {1}", "ka_max({0}, {1})"


def share(nest: LoopNest, sizes: Mapping[str, int]) -> None:
    """Changes the nest in place so that equal expressions are computed once. `sizes` are the sizes that never vary: D0,
    D1, …
    """
    same: dict[int, Expr] = {}
    known: dict[object, Expr] = {}
    for expr in nest.program.exprs:
        _point(expr, same)
        found = known.setdefault(_key(nest, expr), _simple(expr, sizes))
        found.node = found.node or expr.node
        same[id(expr)] = found
    for output in nest.program.outputs:
        output.expr = same.get(id(output.expr), output.expr)
    kept = {id(expr) for expr in same.values()}
    nest.program.exprs = [expr for expr in nest.program.exprs if id(expr) in kept]


def _point(expr: Expr, same: dict[int, Expr]) -> None:
    """Replaces the arguments of an expression by the expressions that they are equal to."""
    if isinstance(expr, Op):
        expr.args = tuple(same.get(id(arg), arg) for arg in expr.args)
    elif isinstance(expr, Reduce):
        expr.arg = same.get(id(expr.arg), expr.arg)
        if expr.joint is not None:
            name, x, first = expr.joint
            total = same.get(id(first), first)
            assert isinstance(total, Reduce)
            expr.joint = (name, same.get(id(x), x), total)


def _key(nest: LoopNest, expr: Expr) -> object:
    if isinstance(expr, Load):
        return (id(nest.loads[id(expr)]), expr.ctype)
    if isinstance(expr, Const):
        return ("const", expr.ctype, type(expr.value), expr.value)
    if isinstance(expr, Op):
        return (expr.text, expr.ctype, *map(id, expr.args))
    if isinstance(expr, Reduce):
        return (expr.kind, expr.ctype, id(expr.arg))
    return id(expr)


def _simple(expr: Expr, sizes: Mapping[str, int]) -> Expr:
    if not isinstance(expr, Op) or len(expr.args) != 2 or expr.text not in (LESS, AT_LEAST):
        return expr
    left, right = expr.args
    if not isinstance(right, Const) or right.value != 0:
        return expr
    if expr.text == LESS:
        return left if isinstance(left, Const) else expr
    return left if _least(left, sizes) > 0 else expr


def _least(expr: Expr, sizes: Mapping[str, int]) -> float:
    """The value of a size that never varies, or of such a size less a number; 0 for anything else."""
    if isinstance(expr, Op) and expr.text == LESS and isinstance(expr.args[1], Const):
        less = expr.args[1].value
        return _least(expr.args[0], sizes) - less if isinstance(less, int | float) else 0
    if not isinstance(expr, Const) or not isinstance(expr.value, int | Poly):
        return 0
    if any(name not in sizes for name in symbols_of(expr.value)):
        return 0
    return size_value(expr.value, dict(sizes))
