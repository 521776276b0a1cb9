"""Lowers depthwise convolutions to windows: each output is a sum over one channel of the input, with the weights of
this channel.

Libraries are slow here (pytorch/pytorch#13716, #18631): a depthwise convolution contains no matrix product, only loads
that neighbouring outputs share.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import COMPUTE, Axes, Expr, Op, Span, TensorExpr, Window
from kernel_assistant.generator.ir.sizes import Size, fixed
from kernel_assistant.generator.lower.context import Context, cast, dim_size, regroup, unify
from kernel_assistant.generator.lower.moving import move
from kernel_assistant.generator.lower.positions import Position
from kernel_assistant.generator.lower.windows_lower import Lowering, Pool
from kernel_assistant.records import Node

#: What the name of a depthwise convolution ends in that our kernels compute with channels last. Its filter lies with
#: channels innermost, too, so that neighbours in memory have weights that are neighbours.
BY_CHANNELS = ".by_channels"
#: Outputs in a row from which most of them have whole windows.
NARROWEST = 24


def is_ours(node: Node, filters: Sequence[Size], groups: object) -> bool:
    """Whether the generator writes a kernel for `node`: only for a depthwise convolution. With channels first, rows
    must have at least NARROWEST outputs, because in narrow rows most outputs are at an edge. With channels last, the
    filter must have channels innermost too (BY_CHANNELS), so that neighbouring channels have neighbouring weights. For
    all other depthwise convolutions libraries are faster.
    """
    forward = node.op.partition(".")[0] in DEPTHWISE and groups != 1 and filters[1] == 1
    sizes = [fixed(size) for size in node.spec.shape[2 - len(filters) :]]
    known = None not in sizes and all(isinstance(size, int) for size in filters)
    if node.op.endswith(BY_CHANNELS):
        return forward and known
    return forward and known and node.spec.strides is None and (sizes[-1] or 0) >= NARROWEST


def _depthwise(rank: int) -> Lowering:
    def lower(context: Context) -> TensorExpr:
        node = context.node
        x, w = context.value(node.args[0]), context.value(node.args[1])
        at = len(x.dims) - rank - 1
        groups = context.argument(6, "groups", 1)
        sizes = [dim_size(axes) for axes in w.dims]
        ours = is_ours(node, sizes, groups) and dim_size(x.dims[at]) == groups
        if not ours or context.argument(2, "bias") is not None:
            raise Unsupported(f"operator {node.op}")
        pool = Pool(context, x, rank)
        spans = _spans(pool, w)
        channels = _channels(x.dims[at], w.dims[0])
        ctype = COMPUTE[node.spec.dtype]
        values, weights = cast(x.expr, ctype), cast(w.expr, ctype)
        spatial = list(x.dims[at + 1 :])
        for dim, span in enumerate(spans):
            if not _moves(span):
                continue
            if spatial[dim]:
                values = move(values, spatial[dim], Position({span.source: 1}))
            if w.dims[2 + dim]:
                assert span.tap is not None
                weights = move(weights, w.dims[2 + dim], Position({span.tap: 1}))
            spatial[dim] = () if span.out.size == 1 else (span.out,)
        expr: Expr = Op(ctype, "{0} * {1}", (values, weights))
        moving = tuple(filter(_moves, spans))
        expr = Window(ctype, "sum", expr, moving) if moving else expr
        return context.result(expr, (*x.dims[:at], channels, *spatial))

    return lower


def _spans(pool: Pool, w: TensorExpr) -> list[Span]:
    """Returns a span (dimension of the window) with a `tap` axis for each spatial dimension of the filter `w`. Raises
    Unsupported if the size of the filter is not known."""
    sizes = [dim_size(axes) for axes in w.dims[2:]]
    kernel = [size for size in sizes if isinstance(size, int)]
    if len(kernel) != len(sizes):
        raise Unsupported("a filter whose size is not known")
    ones = [1] * pool.dims
    stride, dilation = pool.numbers(3, "stride", ones), pool.numbers(5, "dilation", ones)
    named = pool.context.argument(4, "padding", 0)
    if named == "same":
        padding = [step * (size - 1) // 2 for step, size in zip(dilation, kernel, strict=True)]
    else:
        padding = [0] * pool.dims if named == "valid" else pool.numbers(4, "padding", [0] * pool.dims)
    return pool.spans(kernel, stride, padding, dilation, taps=True)


def _moves(span: Span) -> bool:
    """Whether the window is more than a copy in this dimension: it has several positions or padding, or the number of
    outputs differs from that of inputs.
    """
    return (span.size, span.padding, span.out.size) != (1, 0, span.source.size)


def _channels(given: Axes, filters: Axes) -> Axes:
    """Returns the axes of the result's channels: for each input channel one result channel, or several that are next to
    each other."""
    size, count = dim_size(given), dim_size(filters)
    if size == count:
        unify(given, filters)
        return given
    if not isinstance(size, int) or not isinstance(count, int):
        raise Unsupported("channels whose number is not known")
    first, rest = regroup((filters,), (size, count // size))
    unify(given, first)
    return (*given, *rest)


DEPTHWISE = {f"conv{rank}d": _depthwise(rank) for rank in (1, 2, 3)}
