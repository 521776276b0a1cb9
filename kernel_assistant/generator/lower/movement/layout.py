"""Lowers operators that move elements to other positions: joining, padding, rolling."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import (
    COMPUTE,
    Axes,
    Axis,
    Expr,
    Load,
    PrefixScan,
    Reduce,
    TensorExpr,
    Window,
    ordered,
    resolve,
)
from kernel_assistant.generator.ir.sizes import Size, add, mul, parse_size
from kernel_assistant.generator.lower.context import Context, Pieces, broadcast, cast, dim_size, regroup
from kernel_assistant.generator.lower.movement.views import dimension, exclusive_scan
from kernel_assistant.generator.lower.moving import behind, move
from kernel_assistant.generator.lower.positions import (
    Position,
    axes_index,
    both,
    condition,
    integer,
    iota,
    select,
    whole,
    within,
)
from kernel_assistant.records.graph import Operand

#: Most pieces of an output that is written piece by piece, each by statements of its own, and how many times the work
#: of all pieces it has to be to compute them one by one.
MOST_PIECES, LEAST_SHARED = 128, 2

Lowering = Callable[[Context], TensorExpr | tuple[TensorExpr, ...]]


def new_axes(size: Size) -> Axes:
    return () if size == 1 else (Axis(size),)


def along(axes: Axes, offset: Size = 0) -> Expr:
    """Returns the position along `axes`, plus `offset`, as an expression."""
    return iota(axes_index(axes), offset)


def tensors(context: Context) -> list[TensorExpr]:
    """Returns the tensors in the list that is the node's first argument."""
    items = context.node.args[0]
    return [context.value(item) for item in items] if isinstance(items, list) else []


def _cat(context: Context) -> TensorExpr:
    values = [value for value in tensors(context) if not _empty(value)]
    rank = len(context.node.spec.shape)
    dim = min(1, rank - 1) if context.node.op.startswith("hstack") else context.argument(1, "dim", 0)
    index = dimension(context, dim, rank)
    scan = exclusive_scan(context, values, index)
    if scan is not None:
        return scan
    axes = new_axes(parse_size(context.node.spec.shape[index]))
    values, dims = _aligned(context, values, index)
    pieces = _pieces(context, values, dims, index)
    if pieces is not None:
        context.pieces[context.node.name] = pieces
        return context.result(pieces.exprs[0], (*dims[:index], axes, *dims[index + 1 :]))
    parts: list[tuple[Expr, Expr]] = []
    start: Size = 0
    for value in values:
        size = dim_size(value.dims[index])
        guard = within(along(axes, mul(-1, start)), size)
        if value.dims[index]:
            expr = move(value.expr, value.dims[index], Position(axes_index(axes), mul(-1, start), guard=guard))
        else:
            expr = behind(value.expr, guard)
        parts.append((guard, cast(expr, COMPUTE[context.node.spec.dtype])))
        start = add(start, size)
    return context.result(_choice(parts), (*dims[:index], axes, *dims[index + 1 :]))


def _empty(value: TensorExpr) -> bool:
    return any(dim_size(axes) == 0 for axes in value.dims)


def _choice(parts: Sequence[tuple[Expr, Expr]]) -> Expr:
    """Returns the value of the first (condition, value) pair whose condition is true; that of the last pair if no other
    is true."""
    chosen = parts[-1][1]
    for guard, expr in reversed(parts[:-1]):
        chosen = select(guard, expr, chosen)
    return chosen


def _aligned(context: Context, values: list[TensorExpr], dim: int | None) -> tuple[list[TensorExpr], tuple[Axes, ...]]:
    """Makes the values share their loops in all dimensions except `dim` (None: in all). Returns the values, and the
    axes of the shared dimensions, with () at index `dim`.

    If one loop is used for different dimensions of the values, each value gets new loops.
    """
    homes: dict[Axis, set[int]] = {}
    for value in values:
        for at, axes in enumerate(value.dims):
            for axis in resolve(axes):
                homes.setdefault(axis, set()).add(at)
    kept = [tuple(() if at == dim else axes for at, axes in enumerate(value.dims)) for value in values]
    if all(len(home) == 1 for home in homes.values()):
        return values, broadcast(*kept)
    fresh = tuple(new_axes(dim_size(axes)) for axes in kept[0])
    moved = []
    for value, own in zip(values, kept, strict=True):
        expr = value.expr
        for axes, to in zip(own, fresh, strict=True):
            expr = move(expr, axes, Position(axes_index(to))) if axes else expr
        dims = tuple(axes if at == dim else fresh[at] for at, axes in enumerate(value.dims))
        moved.append(TensorExpr(expr, dims, value.dtype))
    return moved, fresh


def _stack(context: Context) -> TensorExpr:
    dim = dimension(context, context.argument(1, "dim", 0), len(context.node.spec.shape))
    values, dims = _aligned(context, tensors(context), None)
    axes = new_axes(len(values))
    if _share_work(context, values):
        ctype = COMPUTE[context.node.spec.dtype]
        exprs = tuple(cast(value.expr, ctype) for value in values)
        pieces = Pieces(exprs, (*dims[:dim], (), *dims[dim:]), dim)
        context.pieces[context.node.name] = pieces
        return context.result(pieces.exprs[0], (*dims[:dim], axes, *dims[dim:]))
    guards = [condition("({0} == {1})", along(axes), whole(number)) for number in range(len(values))]
    ctype = COMPUTE[context.node.spec.dtype]
    parts = [
        (guard, cast(behind(value.expr, guard), ctype)) if axes else (guard, cast(value.expr, ctype))
        for guard, value in zip(guards, values, strict=True)
    ]
    return context.result(_choice(parts), (*dims[:dim], axes, *dims[dim:]))


def _pieces(context: Context, values: list[TensorExpr], dims: tuple[Axes, ...], dim: int) -> Pieces | None:
    """Returns the joined values of a `cat` of gathers of equal sizes, so that each is written by a store of its own: a
    single store would read all gathers for each element. Returns None for any other `cat`."""
    sizes = [dim_size(value.dims[dim]) for value in values]
    if not _may_be_apart(context, len(values)) or any(size != sizes[0] for size in sizes) or sizes[0] == 1:
        return None
    if not all(_gathers(value.expr) for value in values):
        return None
    shared = new_axes(sizes[0])
    exprs = [move(value.expr, value.dims[dim], Position(axes_index(shared))) for value in values]
    ctype = COMPUTE[context.node.spec.dtype]
    joint = (*dims[:dim], shared, *dims[dim + 1 :])
    context.shapes.append(joint)
    return Pieces(tuple(cast(expr, ctype) for expr in exprs), joint, dim, sizes[0])


def _gathers(expr: Expr) -> bool:
    """Whether an expression reads a buffer at positions that are computed, and contains no reduction, scan or
    window."""
    below = ordered([expr])
    return any(isinstance(one, Load) and one.terms for one in below) and not any(map(_loops, below))


def _loops(expr: Expr) -> bool:
    return isinstance(expr, Reduce | PrefixScan | Window)


def _may_be_apart(context: Context, count: int) -> bool:
    return context.node.name in context.may_be_apart and 2 < count <= MOST_PIECES


def _share_work(context: Context, values: list[TensorExpr]) -> bool:
    """Whether each value of a stack is better written by a store of its own, because the values share much work. A
    single store computes all values for each element; for the steps of a recurrence that is quadratic."""
    if not _may_be_apart(context, len(values)):
        return False
    together = ordered([value.expr for value in values])
    if any(map(_loops, together)):
        return False
    return sum(len(ordered([value.expr])) for value in values) >= LEAST_SHARED * len(together)


def _pad(context: Context) -> TensorExpr:
    value, amounts = context.value(context.node.args[0]), context.node.args[1]
    mode, fill = context.argument(2, "mode", "constant"), context.argument(3, "value", 0.0)
    if not isinstance(amounts, list) or not all(isinstance(amount, int) for amount in amounts):
        raise Unsupported(f"pad by {amounts!r}")
    return pad(context, value, [amount for amount in amounts if isinstance(amount, int)], str(mode), fill)


def _constant_pad(context: Context) -> TensorExpr:
    value, amounts = context.value(context.node.args[0]), context.node.args[1]
    numbers = [amount for amount in amounts if isinstance(amount, int)] if isinstance(amounts, list) else []
    return pad(context, value, numbers, "constant", context.argument(2, "value", 0.0))


def _other_pad(mode: str) -> Lowering:
    def lower(context: Context) -> TensorExpr:
        value, amounts = context.value(context.node.args[0]), context.node.args[1]
        numbers = [amount for amount in amounts if isinstance(amount, int)] if isinstance(amounts, list) else []
        return pad(context, value, numbers, mode, 0.0)

    return lower


#: Where a position {0} outside [0, {1}) is read instead.
OUTSIDE = {
    "reflect": "({0} < 0 ? -{0} : ({0} < {1} ? {0} : 2 * {1} - 2 - {0}))",
    "replicate": "ka_clamp({0}, 0, {1} - 1)",
    "circular": "({0} < 0 ? {0} + {1} : ({0} < {1} ? {0} : {0} - {1}))",
}


def pad(context: Context, value: TensorExpr, amounts: list[int], mode: str, fill: Operand) -> TensorExpr:
    """Pads `value`. `amounts` are (before, after) of the last dimension, of the one before it, and so on; negative
    amounts cut elements off. `mode` is constant, reflect, replicate or circular; `fill` is the value of new elements
    for constant.
    """
    expr, dims = value.expr, list(value.dims)
    guards: Expr | None = None
    for number in range(len(amounts) // 2):
        before, after = amounts[2 * number : 2 * number + 2]
        dim = len(dims) - 1 - number
        size = dim_size(dims[dim])
        if before == after == 0:
            continue
        axes = new_axes(add(size, before + after))
        position = along(axes, -before)
        if mode == "constant":
            guard = within(position, size) if before > 0 or after > 0 else None
            guards = both(guards, guard)
            moved = Position(axes_index(axes), -before, guard=guard)
        else:
            moved = Position(term=integer(OUTSIDE[mode], position, whole(size)))
        if dims[dim]:
            expr = move(expr, dims[dim], moved)
        elif moved.guard is not None:
            expr = behind(expr, moved.guard)
        dims[dim] = axes
    if guards is not None:
        expr = select(guards, expr, context.operand(fill if fill is not None else 0.0, expr.ctype).expr)
    return context.result(expr, tuple(dims))


def _roll(context: Context) -> TensorExpr:
    value, shifts, operands = context.value(context.node.args[0]), context.node.args[1], context.argument(2, "dims")
    numbers = shifts if isinstance(shifts, list) else [shifts]
    if not operands:
        flat = tuple(axis for axes in value.dims for axis in axes)
        sizes = [parse_size(size) for size in context.node.spec.shape]
        expr, axes = _rolled(value.expr, flat, numbers[0])
        return context.result(expr, regroup((axes,), tuple(sizes)))
    expr, dims = value.expr, list(value.dims)
    for shift, operand in zip(numbers, operands if isinstance(operands, list) else [operands], strict=True):
        dim = dimension(context, operand, len(dims))
        expr, dims[dim] = _rolled(expr, dims[dim], shift)
    return context.result(expr, tuple(dims))


def _rolled(expr: Expr, axes: Axes, shift: Operand) -> tuple[Expr, Axes]:
    if not isinstance(shift, int):
        raise Unsupported(f"roll by {shift!r}")
    size = dim_size(axes)
    if not axes:
        return expr, axes
    new = new_axes(size)
    if isinstance(size, int):
        term = integer("({0} < 0 ? {0} + {1} : {0})", along(new, -(shift % size)), whole(size))
    else:
        term = integer("ka_remainder({0}, {1})", along(new, -shift), whole(size))
    return move(expr, axes, Position(term=term)), new


def _unbind(context: Context) -> tuple[TensorExpr, ...]:
    value = context.value(context.node.args[0])
    dim = dimension(context, context.argument(1, "dim", 0), len(value.dims))
    axes, count = value.dims[dim], dim_size(value.dims[dim])
    if not isinstance(count, int):
        raise Unsupported("unbind of a dimension of free size")
    dims = (*value.dims[:dim], *value.dims[dim + 1 :])
    exprs = [move(value.expr, axes, Position({}, number)) if axes else value.expr for number in range(count)]
    return tuple(context.result(expr, dims, value.dtype) for expr in exprs)


def _slice_scatter(context: Context) -> TensorExpr:
    """Lowers `slice_scatter` and `select_scatter`: a tensor in which another tensor replaces one slice."""
    base, part = (context.value(context.node.args[index]) for index in (0, 1))
    selected = context.node.op.startswith("select")
    index = dimension(context, context.argument(2, "dim", 0), len(base.dims))
    start, step = context.argument(3, "index" if selected else "start", 0) or 0, context.argument(5, "step", 1)
    if not isinstance(start, int) or step != 1 or not base.dims[index]:
        raise Unsupported(f"{context.node.op} from {start!r} by {step!r}")
    whole_size, axes = dim_size(base.dims[index]), base.dims[index]
    offset = start if start >= 0 else add(whole_size, start)
    own = (*part.dims[:index], (), *part.dims[index:]) if selected else part.dims
    guard = within(iota(axes_index(axes), mul(-1, offset)), dim_size(own[index]))
    if own[index]:
        expr = move(part.expr, own[index], Position(axes_index(axes), mul(-1, offset), guard=guard))
    else:
        expr = behind(part.expr, guard)
    others = [tuple(() if at == index else dim for at, dim in enumerate(dims)) for dims in (base.dims, own)]
    dims = list(broadcast(*others))
    dims[index] = axes
    return context.result(select(guard, cast(expr, base.expr.ctype), base.expr), tuple(dims))


def _copy(context: Context) -> TensorExpr:
    """Lowers `copy` and `fill`: the source, broadcast to the shape of the target and converted to its dtype."""
    source = context.operand(context.node.args[1], COMPUTE[context.node.spec.dtype])
    missing = len(context.node.spec.shape) - len(source.dims)
    return context.result(cast(source.expr, COMPUTE[context.node.spec.dtype]), (*((),) * missing, *source.dims))


JOINING: dict[str, Lowering] = {
    **dict.fromkeys(("cat", "concat", "hstack"), _cat),
    "stack": _stack,
    "copy": _copy,
    "fill": _copy,
    "pad": _pad,
    "constant_pad_nd": _constant_pad,
    **{f"reflection_pad{n}d": _other_pad("reflect") for n in (1, 2, 3)},
    **{f"replication_pad{n}d": _other_pad("replicate") for n in (1, 2, 3)},
    "roll": _roll,
    "unbind": _unbind,
    "select_scatter": _slice_scatter,
    "slice_scatter": _slice_scatter,
}
