"""Lowers an OpGraph to a LoopProgram: a scalar expression for each output, over axes (loops) that the outputs share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import (
    Axes,
    Axis,
    Expr,
    Index,
    PrefixScan,
    Reduce,
    TensorExpr,
    children,
    named_inside,
    ordered,
    resolve,
)
from kernel_assistant.generator.ir.sizes import Size, mul, parse_size
from kernel_assistant.generator.lower.context import Context, contiguous, source, unify
from kernel_assistant.generator.lower.depthwise import DEPTHWISE
from kernel_assistant.generator.lower.expand import expand
from kernel_assistant.generator.lower.movement.bags import BAGS
from kernel_assistant.generator.lower.movement.gathers import GATHERS
from kernel_assistant.generator.lower.movement.layout import JOINING
from kernel_assistant.generator.lower.movement.layout_diagonals import DIAGONALS
from kernel_assistant.generator.lower.movement.layout_resize import RESIZING
from kernel_assistant.generator.lower.movement.layout_views import RESHAPING
from kernel_assistant.generator.lower.movement.sampling import SAMPLING
from kernel_assistant.generator.lower.movement.sorting import KEYS
from kernel_assistant.generator.lower.movement.storage import STORAGE
from kernel_assistant.generator.lower.movement.views import VIEWS
from kernel_assistant.generator.lower.pointwise import lower_pointwise
from kernel_assistant.generator.lower.reductions import REDUCTIONS
from kernel_assistant.generator.lower.windows_lower import WINDOWS
from kernel_assistant.records import OpGraph, TensorSpec

#: Operators that are not elementwise.
LOWERINGS = {**JOINING, **DIAGONALS, **RESHAPING, **RESIZING, **STORAGE, **GATHERS, **BAGS, **SAMPLING, **VIEWS}
LOWERINGS |= {**WINDOWS, **DEPTHWISE, **REDUCTIONS, **KEYS}

#: Nodes that compute nothing.
IGNORED = ("_assert_tensor_metadata", "sym_size", "_assert_scalar", "sym_constrain_range_for_size", "_assert_async")


@dataclass(eq=False, slots=True)
class Output:
    """An output of the graph, or one joined piece of it: `expr` is written to the buffer `name` at offset + Σ
    coefficient·axis of `index`."""

    name: str
    spec: TensorSpec
    expr: Expr
    index: Index
    offset: Size = 0


@dataclass(slots=True)
class LoopProgram:
    """The outputs, all expressions from which they are computed (arguments first), and in `shapes` the resolved axes of
    each tensor of the graph. `apart` is true if some output is written by several stores."""

    outputs: list[Output]
    exprs: list[Expr]
    shapes: list[Axes]
    apart: bool = False


def lower(graph: OpGraph, apart: bool = True) -> LoopProgram:
    """Lowers a graph to expressions. Raises Unsupported with a one-line reason if it cannot. With `apart`, an output
    that joins several values may become several outputs, one for each value."""
    graph = expand(graph)
    context = Context(graph, apart)
    known: dict[int, Expr] = {}
    for value in graph.inputs:
        read = context.values[value.name] = source(value.name, value.spec)
        known[id(read.expr)] = read.expr
        context.shapes.append(context.value(f"%{value.name}").dims)
    for node in graph.nodes:
        if node.op.partition(".")[0] in IGNORED:
            continue
        context.node = node
        lowered = context.values[node.name] = _lower_node(context)
        for expr in _inner(context, lowered, known):
            named_inside(expr, node.name, known)
    for name, lowered in context.values.items():
        for result in lowered if isinstance(lowered, tuple) else ():
            named_inside(result.expr, name, known)
    _join_outputs(context)
    outputs = [output for number, name in enumerate(graph.outputs) for output in _outputs(context, number, name)]
    exprs = ordered([output.expr for output in outputs])
    _join_reductions(context, exprs)
    return LoopProgram(outputs, exprs, _shapes(context), bool(context.pieces))


def _inner(context: Context, lowered: TensorExpr | tuple[TensorExpr, ...], known: dict[int, Expr]) -> Sequence[Expr]:
    """Labels the expression of `lowered`, the value of `context.node`, with the name of this node, unless an earlier
    node has the same expression. If the node has several results, or its value is kept in pieces, nothing is labelled
    here; each of several results gets the name of the `getitem` node that reads it.

    Returns expressions for the caller to pass to `named_inside`, which labels those that have no label yet, and all
    from which they are computed, as intermediate values of this node.
    """
    if isinstance(lowered, tuple):
        return [expr for result in lowered for expr in children(result.expr)]
    pieces = context.pieces.get(context.node.name)
    if pieces is not None:
        return pieces.exprs
    if id(lowered.expr) not in known:
        lowered.expr.node = context.node.name
    return [lowered.expr]


def _lower_node(context: Context) -> TensorExpr | tuple[TensorExpr, ...]:
    name = context.node.op.partition(".")[0]
    lowering = LOWERINGS.get(name)
    lowered = lowering(context) if lowering is not None else lower_pointwise(context)
    if lowered is None:
        raise Unsupported(f"operator {context.node.op}")
    return lowered if isinstance(lowered, tuple) else _filled(context, lowered)


def _filled(context: Context, value: TensorExpr) -> TensorExpr:
    """Adds an axis to each dimension that has none although its size is not 1, as in expanded or constant tensors."""
    shape = context.node.spec.shape
    if len(shape) != len(value.dims):
        raise Unsupported(f"{context.node.op} of rank {len(value.dims)} where the graph says {len(shape)}")
    if all(axes or size == "1" for axes, size in zip(value.dims, shape, strict=True)):
        return value
    dims = tuple(
        axes or (() if size == "1" else (Axis(parse_size(size)),)) for axes, size in zip(value.dims, shape, strict=True)
    )
    return context.result(value.expr, dims, value.dtype)


def _outputs(context: Context, number: int, name: str) -> list[Output]:
    value, spec = context.values[name], context.graph.spec(name)
    if isinstance(value, tuple):
        raise Unsupported("an output that is several tensors")
    sizes = [parse_size(size) for size in spec.shape]
    strides = [parse_size(stride) for stride in spec.strides] if spec.strides is not None else contiguous(sizes)
    pieces = context.pieces.get(name)
    if pieces is None:
        return [Output(f"out{number}", spec, value.expr, _index(value.dims, strides))]
    index, step = _index(pieces.dims, strides), mul(strides[pieces.place], pieces.size)
    return [Output(f"out{number}", spec, expr, dict(index), mul(step, at)) for at, expr in enumerate(pieces.exprs)]


def _index(dims: Sequence[Axes], strides: Sequence[Size]) -> Index:
    index: Index = {}
    for axes, stride in zip(dims, strides, strict=True):
        step = stride
        for axis in reversed(axes):
            index[axis] = step
            step = mul(step, axis.size)
    return index


def _shapes(context: Context) -> list[Axes]:
    shapes = []
    for dims in context.shapes:
        axes = tuple(axis for dim in dims for axis in resolve(dim))
        if len(set(axes)) != len(axes):
            raise Unsupported("one tensor read along two different dimensions at once")
        shapes.append(axes)
    return shapes


def _join_outputs(context: Context) -> None:
    """Makes outputs of equal shape share their loops, even if they read different regions of an input."""
    first: dict[tuple[str, ...], TensorExpr] = {}
    for name in context.graph.outputs:
        value = context.values[name]
        if isinstance(value, TensorExpr):
            shared = first.setdefault(context.graph.spec(name).shape, value)
            for left, right in zip(shared.dims, value.dims, strict=True):
                _join(context, left, right)


def _join_reductions(context: Context, exprs: list[Expr]) -> None:
    """Makes separate reductions and scans of equal sizes share their loops."""
    first: Axes = ()
    for expr in exprs:
        if isinstance(expr, Reduce | PrefixScan):
            axes = expr.axes if isinstance(expr, Reduce) else (expr.axis,)
            first = first or axes
            _join(context, first, axes)


def _join(context: Context, left: Axes, right: Axes) -> None:
    """Makes the loops `left` and `right` the same if their sizes agree and no tensor varies along both."""
    a, b = resolve(left), resolve(right)
    if a == b or [axis.size for axis in a] != [axis.size for axis in b]:
        return
    met = [{axis for dim in dims for axis in resolve(dim)} for dims in context.shapes]
    if not any(shape & set(a) and shape & set(b) for shape in met):
        unify(a, b)
