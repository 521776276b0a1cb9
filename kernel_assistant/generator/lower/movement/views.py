"""Lowers operators that only change positions: views, slices, flips, and a `cat` that makes a scan exclusive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import (
    COMPUTE,
    Axes,
    Axis,
    Const,
    Expr,
    Load,
    Op,
    PrefixScan,
    TensorExpr,
    resolve,
)
from kernel_assistant.generator.ir.named import ceil_div
from kernel_assistant.generator.ir.sizes import Size, add, parse_size, size_of, symbols_of
from kernel_assistant.generator.lower.context import Context, broadcast, cast, dim_size, regroup
from kernel_assistant.generator.lower.moving import move
from kernel_assistant.generator.lower.positions import Position
from kernel_assistant.records.graph import Operand

Lowering = Callable[[Context], TensorExpr | tuple[TensorExpr, ...]]


def dimension(context: Context, operand: Operand, rank: int) -> int:
    """Returns the index 0 … rank - 1 of a dimension that may be given as a negative number. Raises Unsupported if it is
    no integer."""
    if not isinstance(operand, int):
        raise Unsupported(f"{context.node.op}: dimension {operand!r}")
    return operand % max(rank, 1)


def _same(context: Context) -> TensorExpr:
    value = context.value(context.node.args[0])
    return context.result(value.expr, value.dims)


def _dropout(context: Context) -> TensorExpr:
    if context.argument(2, "train", False):
        raise Unsupported("dropout in training mode")
    return _same(context)


def _view(context: Context) -> TensorExpr:
    value = context.value(context.node.args[0])
    shape = tuple(parse_size(size) for size in context.node.spec.shape)
    return context.result(value.expr, regroup(value.dims, shape))


def _expand(context: Context) -> TensorExpr:
    value = context.value(context.node.args[0])
    missing = len(context.node.spec.shape) - len(value.dims)
    return context.result(value.expr, (*((),) * missing, *value.dims))


def _permute(order: Callable[[Context, int], list[int]]) -> Lowering:
    def lower(context: Context) -> TensorExpr:
        value = context.value(context.node.args[0])
        return context.result(value.expr, tuple(value.dims[dim] for dim in order(context, len(value.dims))))

    return lower


def _swapped(context: Context, rank: int) -> list[int]:
    order = list(range(rank))
    if context.node.op == "t":
        return order[::-1]
    first, second = (dimension(context, context.node.args[position], rank) for position in (1, 2))
    order[first], order[second] = second, first
    return order


def _ordered(context: Context, rank: int) -> list[int]:
    dims = context.node.args[1]
    return [dimension(context, dim, rank) for dim in dims] if isinstance(dims, list) else []


def _replaced(value: TensorExpr, dim: int, axes: Axes | None) -> tuple[Axes, ...]:
    return (*value.dims[:dim], *(() if axes is None else (axes,)), *value.dims[dim + 1 :])


def _only_axis(context: Context, value: TensorExpr, dim: int) -> Axis | None:
    axes = resolve(value.dims[dim])
    if len(axes) > 1:
        raise Unsupported(f"{context.node.op} of a joined dimension")
    return axes[0] if axes else None


def _shifted(context: Context, value: TensorExpr, dim: int, size: Size, step: int, offset: Size) -> TensorExpr:
    axes = value.dims[dim]
    if not axes or (size == dim_size(axes) and step == 1 and offset == 0):
        return context.result(value.expr, value.dims)
    new = None if size == 1 else Axis(size)
    expr = move(value.expr, axes, Position({} if new is None else {new: step}, offset))
    return context.result(expr, _replaced(value, dim, () if new is None else (new,)))


def _slice(context: Context) -> TensorExpr:
    value = context.value(context.node.args[0])
    dim = dimension(context, context.argument(1, "dim", 0), len(value.dims))
    start, step = context.argument(2, "start", 0) or 0, context.argument(4, "step", 1)
    if not isinstance(start, int | str) or not isinstance(step, int):
        raise Unsupported(f"slice from {start!r} by {step!r}")
    whole, offset = dim_size(value.dims[dim]), size_of(start)
    if isinstance(offset, int) and offset < 0:
        offset = add(whole, offset)
    sliced = _shifted(context, value, dim, parse_size(context.node.spec.shape[dim]), step, offset)
    if offset == 0 and step == 1:
        context.sliced[id(sliced.expr)] = (value, dim)
    return sliced


def _select(context: Context) -> TensorExpr:
    value = context.value(context.node.args[0])
    dim = dimension(context, context.node.args[1], len(value.dims))
    offset = size_of(context.node.args[2])
    if isinstance(offset, int) and offset < 0:
        offset = add(dim_size(value.dims[dim]), offset)
    axes = value.dims[dim]
    expr = move(value.expr, axes, Position({}, offset)) if axes else value.expr
    return context.result(expr, _replaced(value, dim, None))


def _flip(context: Context) -> TensorExpr:
    value = context.value(context.node.args[0])
    dims = context.node.args[1]
    for operand in dims if isinstance(dims, list) else [dims]:
        dim = dimension(context, operand, len(value.dims))
        axis = _only_axis(context, value, dim)
        if axis is None:
            continue
        new = Axis(axis.size)
        expr = _flipped_scan(value.expr, axis, new) or move(
            value.expr, (axis,), Position({new: -1}, add(axis.size, -1))
        )
        value = context.result(expr, _replaced(value, dim, (new,)))
    return context.result(value.expr, value.dims)


def _flipped_scan(expr: Expr, axis: Axis, new: Axis) -> Expr | None:
    """Returns the flip of the scan `expr` (such as cumsum) along `axis`, as a scan in the other direction along the
    axis `new`; None if `expr` is no scan along `axis`."""
    if not isinstance(expr, PrefixScan) or resolve((expr.axis,)) != (axis,):
        return None
    arg = move(expr.arg, (axis,), Position({new: -1}, add(axis.size, -1)))
    return replace(expr, arg=arg, axis=new, reverse=not expr.reverse)


def _parts(context: Context) -> tuple[TensorExpr, ...]:
    """Lowers `split` and `chunk`: slices, each of which begins where the previous one ends."""
    node, value = context.node, context.value(context.node.args[0])
    dim = dimension(context, context.argument(2, "dim", 0), len(value.dims))
    whole = dim_size(value.dims[dim])
    if not context.graph.dims.keys().isdisjoint(symbols_of(whole)):
        raise Unsupported(f"{node.op} of a dimension of free size")
    read = [one for one in context.graph.nodes if one.op == "getitem" and one.args[0] == f"%{node.name}"]
    own = {one.args[1]: parse_size(one.spec.shape[dim]) for one in read}
    sizes = _sizes_of_parts(context, dim, whole, max((at for at in own if isinstance(at, int)), default=0))
    starts = [0, *accumulate(sizes[:-1], add)]
    return tuple(
        _shifted(context, value, dim, own.get(number, size), 1, start)
        for number, (size, start) in enumerate(zip(sizes, starts, strict=True))
    )


def _sizes_of_parts(context: Context, dim: int, whole: Size, last: int) -> list[Size]:
    """Returns the sizes of the results of `split` or `chunk`. If the size `whole` of the dimension is symbolic, the
    number of results is not known, and the list has the sizes of results 0 to `last`.
    """
    node, given = context.node, context.node.args[1]
    if isinstance(given, list):
        return [size_of(size) for size in given]
    chunks = node.op.startswith(("chunk", "unsafe_chunk"))
    if not isinstance(whole, int):
        return [parse_size(node.spec.shape[dim] if chunks else str(given))] * (last + 1)
    if not isinstance(given, int):
        raise Unsupported(f"{node.op} by {given!r}")
    each = ceil_div(whole, given) if chunks else given
    return [min(each, whole - start) for start in range(0, whole, each)]


def _glu(context: Context) -> TensorExpr:
    value = context.value(context.node.args[0])
    dim = dimension(context, context.argument(1, "dim", -1), len(value.dims))
    half = parse_size(context.node.spec.shape[dim])
    left = _shifted(context, value, dim, half, 1, 0)
    right = _shifted(context, value, dim, half, 1, half)
    dims = broadcast(left.dims, right.dims)
    return context.result(Op(left.expr.ctype, "{0} * ka_sigmoid({1})", (left.expr, right.expr)), dims)


def exclusive_scan(context: Context, values: list[TensorExpr], dim: int) -> TensorExpr | None:
    """Returns the exclusive scan (cumsum or cumprod without the element itself) that equals a `cat` of the neutral
    element and a scan of all elements but the last; None for any other `cat`.
    """
    if len(values) != 2 or not isinstance(values[1].expr, PrefixScan) or not isinstance(values[0].expr, Const):
        return None
    scan, neutral = values[1].expr, 1 if values[1].expr.kind == "prod" else 0
    whole = context.sliced.get(id(scan.arg))
    if scan.kind not in ("sum", "prod"):
        return None
    starts = values[0].expr.value == neutral and dim_size(values[0].dims[dim]) == 1
    if not starts or whole is None or whole[1] != dim or scan.reverse or scan.exclusive:
        return None
    base = whole[0]
    axes = resolve(base.dims[dim])
    if len(axes) != 1 or parse_size(context.node.spec.shape[dim]) != axes[0].size:
        return None
    return context.result(replace(scan, arg=base.expr, axis=axes[0], exclusive=True), base.dims)


def _arange(context: Context) -> TensorExpr:
    numbers = [operand for operand in context.node.args if isinstance(operand, int | str)]
    start = size_of(numbers[0]) if len(numbers) > 1 else 0
    step = numbers[2] if len(numbers) > 2 else context.node.kwargs.get("step", 1)
    if not isinstance(step, int) or len(numbers) < len(context.node.args):
        raise Unsupported("arange of fractions")
    size = parse_size(context.node.spec.shape[0])
    axes: Axes = () if size == 1 else (Axis(size),)
    position = Load("int64_t", "", "i64", dict.fromkeys(axes, step), start)
    return context.result(cast(position, COMPUTE[context.node.spec.dtype]), (axes,))


def _getitem(context: Context) -> TensorExpr:
    name, index = context.node.args
    results = context.values[str(name)[1:]]
    if not isinstance(results, tuple) or not isinstance(index, int) or index >= len(results):
        raise Unsupported(f"a node without a result {index}")
    return context.result(results[index].expr, results[index].dims)


def _broadcast_tensors(context: Context) -> tuple[TensorExpr, ...]:
    items = context.node.args[0]
    values = [context.value(item) for item in items] if isinstance(items, list) else []
    dims = broadcast(*(value.dims for value in values))
    return tuple(TensorExpr(value.expr, dims, value.dtype) for value in values)


VIEWS: dict[str, Lowering] = {
    **dict.fromkeys(("clone", "alias", "detach", "contiguous", "lift_fresh_copy", "identity", "to_dense"), _same),
    **dict.fromkeys(("dropout", "feature_dropout", "native_dropout"), _dropout),
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze"), _view),
    **dict.fromkeys(("view_as", "reshape_as", "view_copy"), _view),
    **dict.fromkeys(("expand", "expand_as", "broadcast_to"), _expand),
    **dict.fromkeys(("transpose", "t", "swapaxes"), _permute(_swapped)),
    "permute": _permute(_ordered),
    "slice": _slice,
    **dict.fromkeys(("narrow", "narrow_copy"), _slice),
    "select": _select,
    "flip": _flip,
    **dict.fromkeys(("split", "split_with_sizes", "chunk", "unsafe_split", "unsafe_chunk"), _parts),
    "glu": _glu,
    "arange": _arange,
    "getitem": _getitem,
    "broadcast_tensors": _broadcast_tensors,
}
