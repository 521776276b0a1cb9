"""Steps of random tasks with operands that are broadcast in inner dimensions (those after the batch): inputs,
parameters, and views of tensors with fewer dimensions."""

from __future__ import annotations

import math

from kernel_assistant_training.synth.builder import Builder, Tensor
from kernel_assistant_training.synth.operations.branches import dressed, met
from kernel_assistant_training.synth.operations.elementwise import LARGEST
from kernel_assistant_training.synth.operations.rows import reduced
from kernel_assistant_training.synth.sizes import FREE, Shape
from kernel_assistant_training.synth.steps import need, plain, step

#: The end of a slice that reaches the end of its dimension.
_END = (1 << 63) - 1
#: Most inputs of one task.
_INPUTS = 4
#: Most elements of an outer sum, for one item of the batch.
_MOST_OUTER = 1 << 20


def _narrow(make: Builder, x: Tensor) -> Shape:
    """Returns the shape of `x` with some sizes replaced by 1, sometimes without leading dimensions of size 1. Raises
    Unfit if nothing would be broadcast."""
    kept = [make.random.random() < 0.55 for _ in x.shape]
    kept[0] = make.random.random() < 0.6
    need(any(kept) and any(not keep and size > 1 for keep, size in zip(kept[1:], x.shape[1:], strict=True)))
    shape = tuple(size if keep else 1 for keep, size in zip(kept, x.shape, strict=True))
    while shape[0] == 1 and len(shape) > 1 and make.random.random() < 0.6:
        shape = shape[1:]
    need(max(shape) > 1)
    return shape


def _given(make: Builder, shape: Shape, dtype: str) -> Tensor:
    """Returns a new operand of this shape: an input if the shape has the free dimension (the batch size), else usually
    a parameter or a buffer. Raises Unfit if the task has too many inputs."""
    if FREE in shape or (make.random.random() < 0.2 and len(make.inputs) < _INPUTS):
        need(len(make.inputs) < _INPUTS)
        return make.input(shape, dtype)
    return make.param(shape, dtype) if make.random.random() < 0.75 else make.buffer(shape, dtype)


@step("inner", 7)
def narrow(make: Builder, x: Tensor) -> Tensor:
    """Combines `x` with an operand of a shape such as [B,1,D1,D1], [B,D0,1], [1,D0,1,1] or [D0,1]."""
    plain(x)
    need(x.rank >= 2)
    other = _given(make, _narrow(make, x), x.dtype)
    return met(make, dressed(make, x), dressed(make, other))


@step("inner", 2)
def two_narrow(make: Builder, x: Tensor) -> Tensor:
    """Combines `x` with two operands, which are broadcast along different dimensions."""
    plain(x)
    need(x.rank >= 3)
    first, then = (_given(make, _narrow(make, x), x.dtype) for _ in range(2))
    return met(make, met(make, x, dressed(make, first)), then)


@step("inner", 5)
def viewed(make: Builder, x: Tensor) -> Tensor:
    """Combines `x` with a tensor of fewer dimensions that `forward` expands by indexing or a view, such as s[:, :,
    None] or w[:, None, None]."""
    plain(x)
    need(x.rank >= 2)
    wide = _unsqueezed(make, _flat(make, x), x)
    return met(make, x, dressed(make, wide))


def _flat(make: Builder, x: Tensor) -> tuple[int, ...]:
    """Returns random dimensions of `x` for an operand with fewer dimensions. They are not just the last dimensions of
    `x`, so that the operand must be expanded. Raises Unfit if the dimensions that were drawn are."""
    first = 0 if x.shape[0] == FREE and make.random.random() < 0.6 else 1
    rest = [dim for dim in range(1, x.rank) if x.shape[dim] > 1]
    count = make.random.choice((1, 1, 2))
    kept = sorted(make.random.sample(rest, min(count, len(rest)))) if first or make.random.random() < 0.75 else []
    dims = tuple([0, *kept] if first == 0 else kept)
    need(bool(dims) and len(dims) < x.rank and all(size < FREE for size in x.shape[1:]))
    need(dims != tuple(range(x.rank - len(dims), x.rank)))
    return dims


def _unsqueezed(make: Builder, dims: tuple[int, ...], x: Tensor) -> Tensor:
    """Returns a new tensor with the dimensions `dims` of `x`, expanded for broadcasting by indexing with None, by
    unsqueeze or by a view."""
    shape = tuple(x.shape[dim] for dim in dims)
    value = _given(make, shape, x.dtype)
    begin = 0 if dims[0] == 0 or make.random.random() < 0.3 else dims[0]
    wanted = tuple(x.shape[dim] if dim in dims else 1 for dim in range(begin, x.rank))
    if make.random.random() < 0.25 and FREE not in wanted:
        return make.view("view", value, list(wanted), shape=wanted)
    indexed = make.random.random() < 0.5
    for dim in range(begin, x.rank):
        if dim in dims:
            if indexed and shape[0] == FREE and dim == 0:
                value = make.view("slice.Tensor", value, 0, 0, _END, shape=value.shape)
            continue
        position = dim - begin
        last = position == value.rank and not indexed and make.random.random() < 0.6
        grown = (*value.shape[:position], 1, *value.shape[position:])
        value = make.view("unsqueeze", value, -1 if last else position, shape=grown)
    return value


@step("inner", 3)
def modulated(make: Builder, x: Tensor) -> Tensor:
    """Computes x · (1 + scale) + shift, where each item of the batch has its own scale and shift for channels or
    features."""
    plain(x)
    need(x.rank >= 3 and len(make.inputs) + 2 <= _INPUTS and x.shape[0] == FREE)
    last = make.random.random() < 0.6
    need(1 < (x.last if last else x.shape[1]) < FREE)
    dims = (0, x.rank - 1) if last else (0, 1)
    if make.random.random() < 0.5:
        shape = tuple(size if dim in dims else 1 for dim, size in enumerate(x.shape))
        scale, shift = make.input(shape, x.dtype), make.input(shape, x.dtype)
    else:
        scale, shift = _unsqueezed(make, dims, x), _unsqueezed(make, dims, x)
    if make.random.random() < 0.7:
        scale = make.each("add.Tensor", scale, make.random.choice((1, 1.0)), most=scale.most + 1)
    need(x.most * scale.most <= LARGEST[make.dtype])
    return make.each("add.Tensor", make.each("mul.Tensor", x, scale, most=x.most * scale.most), shift)


@step("inner", 2)
def excited(make: Builder, x: Tensor) -> Tensor:
    """Combines `x` with its own mean or maximum over inner dimensions, as squeeze-and-excitation does."""
    plain(x)
    need(x.rank >= 3 and all(1 < size < FREE for size in x.shape[1:]))
    dims = make.random.choice(([x.rank - 1], list(range(2, x.rank)), [1]))
    shape = tuple(1 if dim in dims else size for dim, size in enumerate(x.shape))
    op = make.random.choice(("mean.dim", "mean.dim", "amax"))
    factor = dressed(make, make.add(op, x, dims, True, shape=shape), 1)
    return met(make, x, factor)


@step("inner", 2)
def masked_mean(make: Builder, x: Tensor) -> Tensor:
    """Computes the mean of `x` over the positions that a mask keeps."""
    plain(x)
    need(x.rank == 3 and x.shape[0] == FREE and all(1 < size < FREE for size in x.shape[1:]))
    need(len(make.inputs) < _INPUTS)
    mask = make.input(x.shape[:2], make.random.choice(("b1", x.dtype)))
    if mask.dtype == "b1":
        mask = make.cast(mask, x.dtype)
    wide = make.view("unsqueeze", mask, make.random.choice((-1, 2)), shape=(*x.shape[:2], 1))
    total = reduced(make, "sum.dim_IntList", make.each("mul.Tensor", x, wide), 1, False)
    count = reduced(make, "sum.dim_IntList", mask, 1, True)
    least = make.each("clamp_min", count, make.random.choice((1.0, 1, 1e-2)), positive=True)
    return make.each("div.Tensor", total, least, most=total.most * 10)


@step("inner", 2)
def outer(make: Builder, x: Tensor) -> Tensor:
    """Combines each element of a row with each element of another row."""
    plain(x)
    need(2 <= x.rank <= 3 and 1 < x.last < FREE)
    others = make.random.choice((16, 32, 64, 100, 7, 128, x.last))
    need(x.last * others * math.prod(size for size in x.shape[1:-1]) <= _MOST_OUTER)
    column = make.view("unsqueeze", x, -1 if make.random.random() < 0.6 else x.rank, shape=(*x.shape, 1))
    if make.random.random() < 0.5:
        # Not an input, because no other operand would determine its size.
        row = make.param((others,), x.dtype)
    else:
        flat = _given(make, (*x.shape[:-1], others), x.dtype)
        dim = -2 if make.random.random() < 0.6 else x.rank - 1
        row = make.view("unsqueeze", flat, dim, shape=(*x.shape[:-1], 1, others))
    return dressed(make, met(make, column, row))


@step("inner", 1.5)
def positions(make: Builder, x: Tensor) -> Tensor:
    """Combines `x` with the position numbers (0, 1, 2, …) along a dimension, usually scaled, as in position-dependent
    biases and running means."""
    plain(x)
    need(x.rank >= 2)
    dims = [dim for dim in (x.rank - 1, 1) if 1 < x.shape[dim] < FREE]
    need(bool(dims))
    dim = make.random.choice(dims)
    start = make.random.choice((0, 1))
    size = x.shape[dim]
    numbers = make.arange(start, start + size, x.dtype)
    for _ in range(x.rank - 1 - dim):
        numbers = make.view("unsqueeze", numbers, -1, shape=(*numbers.shape, 1))
    if start and make.random.random() < 0.5:
        return make.each("div.Tensor", x, numbers, most=x.most)
    scaled = make.each("mul.Tensor", numbers, make.random.choice((0.01, 0.1, 1 / size, 0.5)), most=2.0)
    return make.each(make.random.choice(("add.Tensor", "mul.Tensor", "sub.Tensor")), x, scaled, most=x.most * 2 + 2)
