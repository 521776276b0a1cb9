"""Lowers pooling operators to windows."""

from __future__ import annotations

from collections.abc import Callable

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import COMPUTE, Axes, Axis, Expr, Op, Reduce, Span, TensorExpr, Window
from kernel_assistant.generator.ir.sizes import parse_size
from kernel_assistant.generator.lower.context import Context, cast, dim_size
from kernel_assistant.generator.lower.moving import move
from kernel_assistant.generator.lower.positions import Position, integer, iota, whole
from kernel_assistant.generator.lower.spans import always_inside, reach, start
from kernel_assistant.generator.lower.windows_chains import largest_of_uneven, largest_with_index, uneven

Lowering = Callable[[Context], TensorExpr | tuple[TensorExpr, ...]]


class Pool:
    """The last `dims` dimensions of `value`, over which a node pools. Reads kernel size, stride, padding and dilation
    from the node's arguments.
    """

    def __init__(self, context: Context, value: TensorExpr, dims: int) -> None:
        self.context, self.value, self.dims = context, value, dims
        self.first = len(value.dims) - dims
        shape = [parse_size(size) for size in context.node.spec.shape][self.first :]
        sizes = [dim_size(axes) for axes in value.dims[self.first :]]
        self.inputs, self.outputs = ([size for size in some if isinstance(size, int)] for some in (sizes, shape))
        if self.first < 0 or len(self.inputs) < len(sizes) or len(self.outputs) < len(shape):
            raise Unsupported(f"{context.node.op} over dimensions of free size")

    def numbers(self, position: int, name: str, default: list[int]) -> list[int]:
        """Returns an argument of the node as one integer for each pooled dimension; a single number counts for all of
        them."""
        given = self.context.argument(position, name)
        if given is None or given == []:
            return default
        items = given if isinstance(given, list) else [given]
        numbers = [item for item in items if isinstance(item, int)]
        if len(numbers) != len(items) or len(items) not in (1, self.dims):
            raise Unsupported(f"{self.context.node.op}: {name} is {given!r}")
        return numbers * (self.dims // len(numbers))

    def spans(
        self, kernel: list[int], stride: list[int], padding: list[int], dilation: list[int], *, taps: bool = False
    ) -> list[Span]:
        """Returns one span (dimension of the window) for each pooled dimension; with `taps`, each span has a `tap` axis
        for weights."""
        sizes = zip(self.inputs, self.outputs, kernel, stride, dilation, padding, strict=True)
        return [Span(Axis(size), Axis(out), k, s, d, p, Axis(k) if taps else None) for size, out, k, s, d, p in sizes]

    def written_out(self, spans: list[Span]) -> tuple[list[Axes], tuple[Axes, ...]]:
        """Returns the axes of the input in the pooled dimensions, and the axes of all dimensions of the result."""
        out = tuple(() if span.out.size == 1 else (span.out,) for span in spans)
        return list(self.value.dims[self.first :]), (*self.value.dims[: self.first], *out)

    def pool(
        self, kind: str, kernel: list[int], stride: list[int], padding: list[int], dilation: list[int]
    ) -> tuple[Expr, tuple[Axes, ...], list[Span | None]]:
        """Returns the reduced values, their dimensions, and for each pooled dimension its span, or None if its window
        is a single element.
        """
        expr, dims = self.value.expr, list(self.value.dims)
        every = self.spans(kernel, stride, padding, dilation)
        spans = [
            None if (span.size, span.padding, span.out.size) == (1, 0, span.source.size) else span for span in every
        ]
        used = [span for span in spans if span is not None]
        if used and all(_everything(span) for span in used):
            axes = tuple(axis for span, dim in zip(spans, dims[self.first :], strict=True) if span for axis in dim)
            expr = Reduce(expr.ctype, kind, expr, axes) if axes else expr
        elif used:
            for index, source in enumerate(spans, self.first):
                if source is not None and dims[index]:
                    expr = move(expr, dims[index], Position({source.source: 1}))
            expr = Window(expr.ctype, kind, expr, tuple(used))
        for index, pooled in enumerate(spans, self.first):
            if pooled is not None:
                dims[index] = () if pooled.out.size == 1 else (pooled.out,)
        return expr, tuple(dims), spans


def _everything(span: Span) -> bool:
    """Whether the span has a single output, whose window covers each position of the dimension exactly once."""
    return (span.out.size, span.padding, span.dilation, span.size) == (1, 0, 1, span.source.size)


def _max_pool(dims: int, with_indices: bool = False) -> Lowering:
    def lower(context: Context) -> TensorExpr | tuple[TensorExpr, ...]:
        value = context.value(context.node.args[0])
        pool = Pool(context, value, dims)
        kernel = pool.numbers(1, "kernel_size", [])
        ones, zeros = [1] * dims, [0] * dims
        padding, dilation = pool.numbers(3, "padding", zeros), pool.numbers(4, "dilation", ones)
        stride = pool.numbers(2, "stride", kernel)
        if with_indices and _is_read(context, 1):
            spans = pool.spans(kernel, stride, padding, dilation)
            pooled, axes = pool.written_out(spans)
            return _with_index(context, value, largest_with_index(value.expr, pooled, spans), axes)
        expr, axes, _ = pool.pool("max", kernel, stride, padding, dilation)
        maxima = context.result(expr, axes, value.dtype)
        return (maxima,) if with_indices else maxima

    return lower


def _with_index(
    context: Context, value: TensorExpr, largest: tuple[Expr, Expr], axes: tuple[Axes, ...]
) -> tuple[TensorExpr, TensorExpr]:
    """Returns the two results of a pooling: the maxima `largest[0]` in the input's dtype, and their indices
    `largest[1]`."""
    best, index = largest
    return context.result(best, axes, value.dtype), context.result(index, axes, "i64")


def _is_read(context: Context, index: int) -> bool:
    """Whether result number `index` of the node is used."""
    own = (f"%{context.node.name}", index)
    return any(node.op == "getitem" and node.args[:2] == own for node in context.graph.nodes)


def _avg_pool(dims: int) -> Lowering:
    def lower(context: Context) -> TensorExpr:
        pool = Pool(context, _floating(context), dims)
        kernel = pool.numbers(1, "kernel_size", [])
        stride, padding = pool.numbers(2, "stride", kernel), pool.numbers(3, "padding", [0] * dims)
        expr, axes, spans = pool.pool("sum", kernel, stride, padding, [1] * dims)
        include = bool(context.argument(5, "count_include_pad", True))
        override = context.argument(6, "divisor_override")
        count: Expr = whole(1)
        if isinstance(override, int):
            count = whole(override)
        else:
            constant = 1
            for span in spans:
                fixed, counted = _count(span, include) if span is not None else (1, None)
                constant *= fixed
                count = count if counted is None else integer("{0} * {1}", count, counted)
            count = integer("{0} * {1}", count, whole(constant)) if isinstance(count, Op) else whole(constant)
        return context.result(Op(expr.ctype, "{0} / {1}", (expr, cast(count, expr.ctype))), axes)

    return lower


def _count(span: Span, include: bool) -> tuple[int, Expr | None]:
    """Returns two factors whose product is the divisor of an average: a constant, and an expression that depends on the
    output position, None if the divisor does not depend on it.
    """
    padding, size = span.padding, span.source.size
    assert isinstance(size, int)
    low, high = (-padding, size + padding) if include else (0, size)
    first, last = reach(span)
    if always_inside(span) or (first >= low and last < high):
        return span.size, None
    begin = iota(*start(span))
    end = integer("ka_min({0}, {1})", integer("({0} + {1})", begin, whole(span.size)), whole(high))
    return 1, integer("({0} - {1})", end, begin if include else integer("ka_max({0}, {1})", begin, whole(0)))


def _floating(context: Context) -> TensorExpr:
    value = context.value(context.node.args[0])
    return TensorExpr(cast(value.expr, COMPUTE[context.node.spec.dtype]), value.dims, value.dtype)


def _adaptive(kind: str, dims: int) -> Lowering:
    def lower(context: Context) -> TensorExpr | tuple[TensorExpr, ...]:
        value = context.value(context.node.args[0]) if kind == "max" else _floating(context)
        pool = Pool(context, value, dims)
        indexed = kind == "max" and _is_read(context, 1)
        if any(size % out for size, out in zip(pool.inputs, pool.outputs, strict=True)):
            spans = pool.spans(*([1] * dims for _ in range(4)))
            pooled, dims_out = pool.written_out(spans)
            if indexed:
                return _with_index(context, value, largest_of_uneven(value.expr, pooled, spans), dims_out)
            reduced, number = uneven(kind, value.expr, pooled, spans)
            if kind == "max":
                return (context.result(reduced, dims_out, value.dtype),)
            return context.result(Op(reduced.ctype, "{0} / {1}", (reduced, cast(number, reduced.ctype))), dims_out)
        kernel = [size // out for size, out in zip(pool.inputs, pool.outputs, strict=True)]
        if indexed:
            spans = pool.spans(kernel, kernel, [0] * dims, [1] * dims)
            pooled, dims_out = pool.written_out(spans)
            return _with_index(context, value, largest_with_index(value.expr, pooled, spans), dims_out)
        expr, axes, _ = pool.pool(kind, kernel, kernel, [0] * dims, [1] * dims)
        if kind == "max":
            return (context.result(expr, axes, value.dtype),)
        count = 1
        for size in kernel:
            count *= size
        return context.result(Op(expr.ctype, "{0} / {1}", (expr, cast(whole(count), expr.ctype))), axes)

    return lower


WINDOWS: dict[str, Lowering] = {
    **{f"max_pool{dims}d": _max_pool(dims) for dims in (1, 2, 3)},
    **{f"max_pool{dims}d_with_indices": _max_pool(dims, with_indices=True) for dims in (1, 2, 3)},
    **{f"avg_pool{dims}d": _avg_pool(dims) for dims in (1, 2, 3)},
    **{f"{tail}adaptive_avg_pool{dims}d": _adaptive("sum", dims) for dims in (1, 2, 3) for tail in ("", "_")},
    **{f"adaptive_max_pool{dims}d": _adaptive("max", dims) for dims in (1, 2, 3)},
}
