"""Lowers operators that select elements by position: triangles, diagonals, identity matrices and meshgrid."""

from __future__ import annotations

from collections.abc import Callable

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import COMPUTE, Const, TensorExpr
from kernel_assistant.generator.ir.sizes import parse_size
from kernel_assistant.generator.lower.context import Context, dim_size
from kernel_assistant.generator.lower.movement.layout import along, new_axes, tensors
from kernel_assistant.generator.lower.movement.views import dimension
from kernel_assistant.generator.lower.moving import behind, move
from kernel_assistant.generator.lower.positions import (
    Position,
    axes_index,
    both,
    condition,
    iota,
    select,
    whole,
    within,
)

Lowering = Callable[[Context], TensorExpr | tuple[TensorExpr, ...]]


def _triangle(sign: str) -> Lowering:
    def lower(context: Context) -> TensorExpr:
        value, offset = context.value(context.node.args[0]), int(context.number(1, "diagonal", 0))
        row, column = (iota(axes_index(axes)) for axes in value.dims[-2:])
        test = condition(f"({{0}} - {{1}} {sign} {{2}})", column, row, whole(offset))
        return context.result(select(test, value.expr, Const(value.expr.ctype, 0)), value.dims)

    return lower


def _diagonal(context: Context) -> TensorExpr:
    value, offset = context.value(context.node.args[0]), int(context.number(1, "offset", 0))
    rank = len(value.dims)
    first = dimension(context, context.argument(2, "dim1", 0), rank)
    second = dimension(context, context.argument(3, "dim2", 1), rank)
    return _along_diagonal(context, value, offset, first, second)


def _along_diagonal(context: Context, value: TensorExpr, offset: int, first: int, second: int) -> TensorExpr:
    axes = new_axes(parse_size(context.node.spec.shape[-1]))
    expr = value.expr
    for dim, before in ((first, max(-offset, 0)), (second, max(offset, 0))):
        if value.dims[dim]:
            expr = move(expr, value.dims[dim], Position(axes_index(axes), before))
    dims = tuple(own for dim, own in enumerate(value.dims) if dim not in (first, second))
    return context.result(expr, (*dims, axes))


def _diag(context: Context) -> TensorExpr:
    value, offset = context.value(context.node.args[0]), int(context.number(1, "diagonal", 0))
    if len(value.dims) == 2:
        return _along_diagonal(context, value, offset, 0, 1)
    return _embedded(context, value, offset)


def _diag_embed(context: Context) -> TensorExpr:
    value, offset = context.value(context.node.args[0]), int(context.number(1, "offset", 0))
    rank = len(context.node.spec.shape)
    dims = [dimension(context, context.argument(2 + n, f"dim{n + 1}", n - 2), rank) for n in range(2)]
    if dims != [rank - 2, rank - 1]:
        raise Unsupported("diag_embed into dimensions that are not the last ones")
    return _embedded(context, value, offset)


def _embedded(context: Context, value: TensorExpr, offset: int) -> TensorExpr:
    """Returns for each row of `value` a matrix that has the row on its diagonal number `offset` (0: the main one, above
    0: further right) and zeros elsewhere."""
    rows, columns = (new_axes(parse_size(size)) for size in context.node.spec.shape[-2:])
    size = dim_size(value.dims[-1])
    line = condition("({0} == {1})", along(columns), along(rows, offset))
    guard = both(line, within(along(rows, -max(-offset, 0)), size))
    assert guard is not None
    if value.dims[-1]:
        position = Position(axes_index(rows), -max(-offset, 0), guard=guard)
        expr = move(value.expr, value.dims[-1], position)
    else:
        expr = behind(value.expr, guard)
    return context.result(select(guard, expr, Const(expr.ctype, 0)), (*value.dims[:-1], rows, columns))


def _eye(context: Context) -> TensorExpr:
    rows, columns = (new_axes(parse_size(size)) for size in context.node.spec.shape)
    ctype = COMPUTE[context.node.spec.dtype]
    test = condition("({0} == {1})", along(rows), along(columns))
    return context.result(select(test, Const(ctype, 1), Const(ctype, 0)), (rows, columns))


def _meshgrid(context: Context) -> tuple[TensorExpr, ...]:
    if context.node.kwargs.get("indexing") != "ij":
        raise Unsupported("meshgrid that is not indexed by rows and columns")
    values = tensors(context)
    dims = tuple(value.dims[0] if value.dims else () for value in values)
    return tuple(context.result(value.expr, dims, value.dtype) for value in values)


DIAGONALS: dict[str, Lowering] = {
    "tril": _triangle("<="),
    "triu": _triangle(">="),
    "diagonal": _diagonal,
    "diag": _diag,
    "diag_embed": _diag_embed,
    "eye": _eye,
    "meshgrid": _meshgrid,
}
