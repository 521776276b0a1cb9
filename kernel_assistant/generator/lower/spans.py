"""Computes with windows of poolings and with spans, their dimensions: the first and last position that they cover, and
the value that elements outside the tensor count as."""

from __future__ import annotations

from kernel_assistant.generator.ir.expr import (
    Const,
    Expr,
    Index,
    Op,
    Span,
    Window,
)
from kernel_assistant.generator.ir.sizes import Size


def neutral(kind: str, ctype: str) -> Expr:
    """Returns the neutral element of the window's `kind`, which is used for positions outside the tensor."""
    if kind == "sum" or ctype == "bool":
        return Const(ctype, 0)
    return Op(ctype, "INT64_MIN", ()) if ctype == "int64_t" else Const(ctype, float("-inf"))


def reach(span: Span) -> tuple[int, int]:
    """Returns the first and the last position that the windows of all outputs cover, for a span (dimension of a window)
    with constant sizes."""
    assert isinstance(span.out.size, int)
    last = (span.out.size - 1) * span.stride + (span.size - 1) * span.dilation - span.padding
    return -span.padding, last


def always_inside(span: Span) -> bool:
    """Whether no window of the span extends beyond the tensor."""
    first, last = reach(span)
    return first >= 0 and isinstance(span.source.size, int) and last < span.source.size


def start(span: Span) -> tuple[Index, Size]:
    """Returns the first position of the window of each output as (index, offset): offset + Σ coefficient·axis."""
    return ({} if span.out.size == 1 else {span.out: span.stride}), -span.padding


def positions(window: Window) -> int:
    count = 1
    for span in window.spans:
        count *= span.size
    return count
