"""Lowers operators that depend on memory layout: `as_strided`, which reads a storage at given strides, and
`unfold_backward`, which writes windows back to the positions from which `unfold` took them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import COMPUTE, Const, Index, Load, TensorExpr
from kernel_assistant.generator.ir.sizes import Size, parse_size, size_of, size_value
from kernel_assistant.generator.lower.context import Context, contiguous, dim_size
from kernel_assistant.generator.lower.movement.layout import along, new_axes
from kernel_assistant.generator.lower.movement.views import dimension
from kernel_assistant.generator.lower.moving import move
from kernel_assistant.generator.lower.positions import Position, both, integer, select, whole, within
from kernel_assistant.records import TensorSpec
from kernel_assistant.records.graph import Operand

Lowering = Callable[[Context], TensorExpr]


def _as_strided(context: Context) -> TensorExpr:
    """Reads an input of the graph at offset + Σ stride·position. The operand must own the storage, because offsets
    count from its first element. Raises Unsupported if the operand is no input."""
    name = str(context.node.args[0])[1:]
    spec = next((value.spec for value in context.graph.inputs if value.name == name), None)
    if spec is None:
        raise Unsupported("as_strided of a value that is not in memory")
    shape = [parse_size(size) for size in context.node.spec.shape]
    strides, offset = _sizes(context.node.args[2]), size_of(context.argument(3, "storage_offset", 0))
    _check_reach(context, spec, shape, strides, offset)
    dims = tuple(new_axes(size) for size in shape)
    index: Index = {axes[0]: stride for axes, stride in zip(dims, strides, strict=True) if axes}
    return context.result(Load(COMPUTE[spec.dtype], name, spec.dtype, index, offset), dims, spec.dtype)


def _sizes(operand: Operand) -> list[Size]:
    return [size_of(item) for item in operand] if isinstance(operand, list) else []


def _check_reach(context: Context, spec: TensorSpec, shape: list[Size], strides: list[Size], offset: Size) -> None:
    """Raises Unsupported if `as_strided` would read outside its operand, at the sizes of the graph or at two other
    choices of its free dimensions (sizes that only a call determines).
    """
    sizes = [parse_size(size) for size in spec.shape]
    own = [parse_size(stride) for stride in spec.strides] if spec.strides is not None else contiguous(sizes)
    base = context.graph.dims
    for dims in (base, dict.fromkeys(base, 1), {name: 3 * size + 7 for name, size in base.items()}):
        start = size_value(offset, dims)
        if start < 0 or start + _reach(shape, strides, dims) > _reach(sizes, own, dims):
            raise Unsupported("as_strided of memory outside its operand")


def _reach(shape: Sequence[Size], strides: Sequence[Size], dims: dict[str, int]) -> int:
    """Returns the distance from the first to the last element in memory, counted in elements, at the free dimensions
    `dims`."""
    pairs = [(size_value(size, dims), size_value(stride, dims)) for size, stride in zip(shape, strides, strict=True)]
    return sum((size - 1) * stride for size, stride in pairs)


def _unfold_backward(context: Context) -> TensorExpr:
    """Lowers `unfold_backward`: writes windows back to their positions, with zeros between them. Raises Unsupported if
    windows overlap."""
    value = context.value(context.node.args[0])
    dim, size, step = context.node.args[2:5]
    if not isinstance(size, int) or not isinstance(step, int):
        raise Unsupported(f"unfold_backward by {size!r} and {step!r}")
    index = dimension(context, dim, len(value.dims) - 1)
    count, length = dim_size(value.dims[index]), parse_size(context.node.spec.shape[index])
    if count != 1 and size > step:
        raise Unsupported("unfold_backward of windows that overlap")
    axes = new_axes(length)
    at = along(axes)
    window, inside = whole(0), at
    if count != 1:
        window, inside = integer("({0} / {1})", at, whole(step)), integer("({0} % {1})", at, whole(step))
    guard = both(within(inside, size), within(window, count))
    assert guard is not None
    expr = value.expr
    for own, position in ((value.dims[index], window), (value.dims[-1], inside)):
        expr = move(expr, own, Position(term=position, guard=guard)) if own else expr
    zero = Const(expr.ctype, 0)
    return context.result(select(guard, expr, zero), (*value.dims[:index], axes, *value.dims[index + 1 : -1]))


STORAGE: dict[str, Lowering] = {"as_strided": _as_strided, "unfold_backward": _unfold_backward}
