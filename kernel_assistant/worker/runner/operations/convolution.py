"""Converts the sizes and strides of a convolution to the form that cuDNN takes, and checks them. Standard library
only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..plan import BoundLibraryCall, LibraryError

INT_MAX = 2**31 - 1


class ConvolutionShape(NamedTuple):
    """The shape of a convolution over two or three spatial dimensions. `x`, `w`, `out` and `bias` are sizes in the
    order N, C, spatial, whatever the memory layout; `w` is the filter."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    out: tuple[int, ...]
    bias: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    channels_last: bool

    def sizes_of(self, field: str) -> tuple[int, ...]:
        """Returns the sizes of an operand of the launch: x, w, z (which is added to the result), bias or out."""
        return {"x": self.x, "w": self.w, "bias": self.bias}.get(field, self.out)

    @property
    def is_empty(self) -> bool:
        return 0 in self.out

    @property
    def x_strides(self) -> tuple[int, ...]:
        return strides(self.x, self.channels_last)

    @property
    def out_strides(self) -> tuple[int, ...]:
        return strides(self.out, self.channels_last)

    @property
    def bias_strides(self) -> tuple[int, ...]:
        return strides(self.bias, self.channels_last)


def read_shape(launch: BoundLibraryCall) -> ConvolutionShape:
    """Returns the convolution of a launch; a spatial dimension of size 1 is added to a 1-D one. Raises LibraryError if
    its sizes contradict each other or exceed its buffers."""
    settings, sizes = launch.settings, launch.sizes
    stride, padding, dilation = (_numbers(settings[key]) for key in ("stride", "padding", "dilation"))
    groups, rank = int(settings["groups"]), len(stride)
    n, c, k = sizes["n"], sizes["c"], sizes["k"]
    inner, kernel, outer = (tuple(sizes[f"{letter}{index}"] for index in range(rank)) for letter in "ifo")
    if c % groups or k % groups or min(c, k, *kernel) < 1 or min(n, *inner, *outer) < 0:
        raise LibraryError(f"{launch.symbol}: {c} channels to {k} in {groups} groups over a filter {kernel}")
    transposed = launch.library == "cudnn.conv_transpose"
    # The input of a transposed convolution has the size of a convolution's output.
    big, small = (outer, inner) if transposed else (inner, outer)
    expected = tuple(
        (size + 2 * pad - step * (extent - 1) - 1) // hop + 1
        for size, pad, step, extent, hop in zip(big, padding, dilation, kernel, stride, strict=True)
    )
    if 0 not in (n, *inner, *outer) and small != expected:
        raise LibraryError(f"{launch.symbol}: {inner} gives another size than {outer}")
    w = (c, k // groups, *kernel) if transposed else (k, c // groups, *kernel)
    shape = ConvolutionShape(
        x=(n, c, *_planar(inner, 1)),
        w=(*w[:2], *_planar(kernel, 1)),
        out=(n, k, *_planar(outer, 1)),
        bias=(1, k, *[1] * max(rank, 2)),
        stride=_planar(stride, 1),
        padding=_planar(padding, 0),
        dilation=_planar(dilation, 1),
        groups=groups,
        channels_last=settings["layout"] == "nhwc",
    )
    for field in launch.fields:
        count = k if field == "bias" else math.prod(shape.sizes_of(field))
        if count > launch.spans[field]:
            raise LibraryError(f"{launch.symbol}: {field} has {launch.spans[field]} elements, the launch uses {count}")
        if count > INT_MAX:
            raise LibraryError(f"{launch.symbol}: {field} has more elements than cuDNN takes")
    return shape


def strides(sizes: Sequence[int], channels_last: bool) -> tuple[int, ...]:
    """Returns the strides, in elements, of a dense tensor with the sizes N, C, spatial: stored channels last, or in
    this order."""
    order = [0, *range(2, len(sizes)), 1] if channels_last else list(range(len(sizes)))
    steps, step = [0] * len(sizes), 1
    for position in reversed(order):
        steps[position] = step
        step *= sizes[position]
    return tuple(steps)


def _planar(values: tuple[int, ...], fill: int) -> tuple[int, ...]:
    return (fill, *values) if len(values) == 1 else values


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))
