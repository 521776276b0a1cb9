"""Lowers operators that read at positions given by a tensor: embedding, index_select, gather, indexing by integer
tensors, one_hot.

A negative index counts from the end. An index outside the dimension is an error in PyTorch; here it reads the nearest
element that exists, and `one_hot` gives a row of zeros.
"""

from __future__ import annotations

from collections.abc import Callable

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import Axes, Axis, Expr, Op, TensorExpr, resolve
from kernel_assistant.generator.ir.sizes import Size, parse_size
from kernel_assistant.generator.lower.context import Context, broadcast, dim_size
from kernel_assistant.generator.lower.movement.views import dimension
from kernel_assistant.generator.lower.moving import move
from kernel_assistant.generator.lower.positions import Position, axes_index, integer, iota, whole
from kernel_assistant.records.graph import Operand

Lowering = Callable[[Context], TensorExpr | tuple[TensorExpr, ...]]


def index_value(context: Context, operand: Operand) -> TensorExpr:
    """Returns an operand as a tensor of integer indices. Raises Unsupported if it has another dtype."""
    value = context.value(operand)
    if value.dtype not in ("i64", "i32", "i16", "i8", "u8"):
        raise Unsupported(f"{context.node.op} with indices of {value.dtype}")
    return value


def _existing(index: Expr, size: Size) -> Expr:
    """Returns the position that `index` selects in a dimension of `size` elements. Negative indices count from the end;
    a position outside the dimension becomes the nearest one inside.
    """
    wrapped = integer("({0} < 0 ? {0} + {1} : {0})", index, whole(size))
    return integer("ka_clamp({0}, 0, {1} - 1)", wrapped, whole(size))


def at_index(value: TensorExpr, dim: int, index: Expr) -> Expr:
    """Returns `value` at the index `index` of its dimension `dim`; its other dimensions are unchanged."""
    axes = value.dims[dim]
    return move(value.expr, axes, Position(term=_existing(index, dim_size(axes)))) if axes else value.expr


def _embedding(context: Context) -> TensorExpr:
    table, index = context.value(context.node.args[0]), index_value(context, context.node.args[1])
    return context.result(at_index(table, 0, index.expr), (*index.dims, *table.dims[1:]))


def _index_select(context: Context) -> TensorExpr:
    value, index = context.value(context.node.args[0]), index_value(context, context.node.args[2])
    dim = dimension(context, context.node.args[1], len(value.dims))
    return context.result(
        at_index(value, dim, index.expr), (*value.dims[:dim], *(index.dims or ((),)), *value.dims[dim + 1 :])
    )


def _tensor_index(context: Context) -> TensorExpr:
    """Lowers indexing by integer tensors in one or more neighbouring dimensions, such as x[:, i, j]."""
    value, items = context.value(context.node.args[0]), context.node.args[1]
    indexed = [dim for dim, item in enumerate(items) if item is not None] if isinstance(items, list) else []
    if not isinstance(items, list) or not indexed or indexed != list(range(indexed[0], indexed[-1] + 1)):
        raise Unsupported("index by tensors for dimensions that are not neighbours")
    indices = [index_value(context, items[dim]) for dim in indexed]
    expr = value.expr
    for dim, index in zip(indexed, indices, strict=True):
        expr = at_index(TensorExpr(expr, value.dims, value.dtype), dim, index.expr)
    dims = broadcast(*(index.dims for index in indices))
    return context.result(expr, (*value.dims[: indexed[0]], *dims, *value.dims[indexed[-1] + 1 :]))


def _gather(context: Context) -> TensorExpr:
    value, index = context.value(context.node.args[0]), index_value(context, context.node.args[2])
    dim = dimension(context, context.node.args[1], len(value.dims))
    return _along(context, value, index, dim)


def _take_along(context: Context) -> TensorExpr:
    value, index = context.value(context.node.args[0]), index_value(context, context.node.args[1])
    dim = context.argument(2, "dim")
    if dim is None:
        raise Unsupported("take_along_dim without a dimension")
    return _along(context, value, index, dimension(context, dim, len(value.dims)))


def _along(context: Context, value: TensorExpr, index: TensorExpr, dim: int) -> TensorExpr:
    """Reads `value` along dimension `dim` at the positions in `index`, which has the same rank, as
    `torch.gather` does."""
    expr, dims = at_index(value, dim, index.expr), list(index.dims)
    for other, (mine, theirs) in enumerate(zip(value.dims, index.dims, strict=True)):
        if other == dim or not mine:
            continue
        size = parse_size(context.node.spec.shape[other])
        if theirs:
            expr = move(expr, mine, Position(axes_index(resolve(theirs))))
        elif size == 1:
            expr = move(expr, mine, Position())
        else:
            dims[other] = mine
    return context.result(expr, tuple(dims))


def _one_hot(context: Context) -> TensorExpr:
    index, classes = index_value(context, context.node.args[0]), parse_size(context.node.spec.shape[-1])
    last: Axes = () if classes == 1 else (Axis(classes),)
    position = iota(axes_index(last))
    return context.result(Op("int64_t", "({0} == {1} ? 1 : 0)", (index.expr, position)), (*index.dims, last))


GATHERS: dict[str, Lowering] = {
    "embedding": _embedding,
    "index_select": _index_select,
    "index": _tensor_index,
    "gather": _gather,
    "take_along_dim": _take_along,
    "one_hot": _one_hot,
}
