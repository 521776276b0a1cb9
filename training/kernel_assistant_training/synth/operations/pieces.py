"""Steps of random tasks that combine parts of one value with each other: neighbours, channels, rotated halves. Also
steps with slices of tables, and upsampling."""

from __future__ import annotations

from kernel_assistant_training.synth import numbers
from kernel_assistant_training.synth.builder import Builder, Tensor
from kernel_assistant_training.synth.layouts import contiguous
from kernel_assistant_training.synth.operations.branches import dressed, met
from kernel_assistant_training.synth.operations.broadcasting import pieces
from kernel_assistant_training.synth.sizes import FREE, Shape
from kernel_assistant_training.synth.steps import need, plain, step

#: The end of a slice that reaches the end of its dimension.
_END = (1 << 63) - 1


def _cut(make: Builder, x: Tensor, dim: int, start: int, end: int) -> Tensor:
    """Returns x[start:] if `end` is 0, else x[start:end] with a negative `end`, along the dimension `dim`."""
    strides = x.strides or contiguous(x.shape)
    size = x.shape[dim] + end - start
    shape: Shape = tuple(size if axis == dim else old for axis, old in enumerate(x.shape))
    return make.view("slice.Tensor", x, dim, start, end or _END, shape=shape, strides=strides)


def _inner(make: Builder, x: Tensor, least: int = 4) -> int:
    """Returns a random dimension other than the first, often the last, that has at least `least` elements. Raises Unfit
    if there is none."""
    plain(x)
    dims = [dim for dim in range(1, x.rank) if least <= x.shape[dim] < FREE]
    need(bool(dims))
    return dims[-1] if make.random.random() < 0.6 else make.random.choice(dims)


@step("pieces", 4)
def neighbours(make: Builder, x: Tensor) -> Tensor:
    """Combines each element with its predecessor: differences, ratios, means of neighbours."""
    dim = _inner(make, x)
    after, before = _cut(make, x, dim, 1, 0), _cut(make, x, dim, 0, -1)
    difference = met(make, after, before) if make.random.random() < 0.3 else make.each("sub.Tensor", after, before)
    return dressed(make, difference) if make.random.random() < 0.7 else make.each("abs", difference, positive=True)


@step("pieces", 2)
def around_each(make: Builder, x: Tensor) -> Tensor:
    """Combines each element with its neighbours on both sides, after padding: second differences, smoothing."""
    plain(x)
    need(x.rank >= 3 and 4 <= x.last < FREE)
    mode = make.random.choice(("replicate", "reflect", "constant"))
    amounts = [1, 1, *[0, 0] * (x.rank - 3)] if mode != "constant" else [1, 1]
    rest = () if mode == "constant" else (mode,)
    padded = make.add("pad", x, amounts, *rest, shape=(*x.shape[:-1], x.last + 2))
    dim = x.rank - 1
    left, right = _cut(make, padded, dim, 0, -2), _cut(make, padded, dim, 2, 0)
    if make.random.random() < 0.5:
        both = make.each("add.Tensor", left, right, most=2 * x.most)
        double = make.each("mul.Tensor", x, make.random.choice((2.0, 2, 0.5)), most=2 * x.most)
        return make.each("sub.Tensor", both, double, most=4 * x.most)
    one, other = (dressed(make, make.each("sub.Tensor", side, x, most=2 * x.most)) for side in (left, right))
    return make.each("add.Tensor", one, other, most=one.most + other.most)


@step("pieces", 3)
def selected(make: Builder, x: Tensor) -> Tensor:
    """Selects two or three indices of a dimension, such as colours or coordinates, scales or transforms each slice, and
    combines the slices."""
    dim = _inner(make, x, 2)
    need(x.rank >= 3)
    positions = make.random.sample(range(min(x.shape[dim], 4)), make.random.choice((2, min(3, x.shape[dim]))))
    steps = contiguous(x.shape)
    shape, strides = (*x.shape[:dim], *x.shape[dim + 1 :]), (*steps[:dim], *steps[dim + 1 :])
    written = dim - x.rank if make.random.random() < 0.3 else dim
    total: Tensor | None = None
    for position in positions:
        one = make.view("select.int", x, written, position, shape=shape, strides=strides)
        if make.random.random() < 0.5:
            one = make.each("mul.Tensor", one, numbers.scale(make.random), most=x.most * 4)
        else:
            one = dressed(make, one)
        total = one if total is None else met(make, total, one)
    assert total is not None
    return total


@step("pieces", 3)
def turned_halves(make: Builder, x: Tensor) -> Tensor:
    """Applies a rotary embedding: x · cos + (−second half, first half) · sin, where cos and sin are parameters or
    buffers."""
    plain(x)
    need(x.rank >= 3 and x.last < FREE and x.last % 2 == 0 and x.last >= 4 and x.shape[-2] < FREE)
    left, right = pieces(make, x, x.last // 2, -1)
    turned = make.add("cat", [make.each("neg", right), left], -1, shape=x.shape)
    cos, sin = (_table(make, x.shape[-2:], x.dtype) for _ in range(2))
    first, then = make.each("mul.Tensor", x, cos), make.each("mul.Tensor", turned, sin)
    return make.each("add.Tensor", first, then, most=2 * x.most)


def _table(make: Builder, shape: Shape, dtype: str) -> Tensor:
    """Returns a buffer or a parameter of this shape; sometimes the first rows of a longer one."""
    held = make.buffer if make.random.random() < 0.6 else make.param
    longer = shape[0] * make.random.choice((2, 4, 8))
    if make.random.random() < 0.5:
        return held(shape, dtype)
    return make.view("slice.Tensor", held((longer, *shape[1:]), dtype), 0, 0, shape[0], shape=shape)


@step("pieces", 2)
def with_table(make: Builder, x: Tensor) -> Tensor:
    """Combines `x` with a table that has a row for each position, and sometimes further rows that are not used."""
    plain(x)
    need(x.rank >= 3 and x.shape[-2] < FREE and x.last < FREE and min(x.shape[-2:]) > 1)
    return met(make, x, _table(make, x.shape[-2:], x.dtype))


@step("pieces", 3)
def beside(make: Builder, x: Tensor) -> Tensor:
    """Concatenates `x` with a new input that may have another size in the concatenated dimension, after random
    elementwise steps on each."""
    plain(x)
    dim = make.random.choice((1, x.rank - 1))
    need(x.rank >= 2 and x.shape[0] == FREE and 1 < x.shape[dim] < FREE and len(make.inputs) < 4)
    size = x.shape[dim]
    more = make.random.choice([one for one in (size, size // 2, 2 * size, 1, 16, 64) if one])
    other = make.input((*x.shape[:dim], more, *x.shape[dim + 1 :]), x.dtype)
    parts = [dressed(make, x), dressed(make, other)]
    make.random.shuffle(parts)
    shape = (*x.shape[:dim], size + more, *x.shape[dim + 1 :])
    return make.add("cat", parts, make.random.choice((dim, dim - x.rank)), shape=shape, most=max(x.most, other.most))


@step("pieces", 2)
def padded_to(make: Builder, x: Tensor) -> Tensor:
    """Pads `x` with zeros to the shape of another input, then combines or concatenates the two."""
    plain(x)
    inner = make.random.choice((1, 2)) if x.rank > 3 else 1
    need(x.rank >= 3 and x.shape[0] == FREE and all(1 < one < FREE for one in x.shape[1:]) and len(make.inputs) < 4)
    amounts = [make.random.choice((1, 2, 2, 3, 4))] * (2 * inner)
    if make.random.random() < 0.4:
        amounts = [make.random.choice((0, 1, 2, 3)) for _ in amounts]
    sizes = list(x.shape)
    for index in range(inner):
        sizes[-1 - index] += amounts[2 * index] + amounts[2 * index + 1]
    need(tuple(sizes) != x.shape)
    own = make.add("pad", dressed(make, x), amounts, shape=tuple(sizes))
    other = dressed(make, make.input(tuple(sizes), x.dtype))
    if make.random.random() < 0.5:
        return met(make, own, other)
    shape = (sizes[0], 2 * sizes[1], *sizes[2:])
    return make.add("cat", [own, other] if make.random.random() < 0.6 else [other, own], 1, shape=shape)


@step("pieces", 3)
def doubled(make: Builder, x: Tensor) -> Tensor:
    """Repeats each element along the inner dimensions, as an image decoder upsamples; sometimes combines the result
    with another input."""
    plain(x)
    rank = x.rank - 2
    need(1 <= rank <= 3 and all(1 < size < FREE for size in x.shape[2:]))
    by = make.random.choice((2, 2, 2, 4, 3)) if rank < 3 else 2
    shape = (*x.shape[:2], *(size * by for size in x.shape[2:]))
    grown = make.add(f"upsample_nearest{rank}d.vec", x, None, [float(by)] * rank, shape=shape)
    kind = make.random.random()
    if kind < 0.4 or len(make.inputs) > 3 or x.shape[1] >= FREE:
        return grown
    other = make.input((x.shape[0], make.random.choice((x.shape[1], x.shape[1], 2 * x.shape[1])), *shape[2:]), x.dtype)
    if other.shape == shape and kind < 0.7:
        return met(make, grown, dressed(make, other))
    parts = [grown, dressed(make, other)]
    if make.random.random() < 0.5:
        parts.reverse()
    return make.add("cat", parts, 1, shape=(x.shape[0], x.shape[1] + other.shape[1], *shape[2:]))
