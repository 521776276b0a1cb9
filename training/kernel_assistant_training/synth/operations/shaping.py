"""Steps of random tasks that change the layout: permuting, flipping, rolling, joining, padding, slicing, repeating."""

from __future__ import annotations

from kernel_assistant_training.synth.builder import Builder, Tensor
from kernel_assistant_training.synth.layouts import contiguous, permuted
from kernel_assistant_training.synth.operations.broadcasting import partner
from kernel_assistant_training.synth.sizes import FREE, literal
from kernel_assistant_training.synth.steps import need, plain, step


@step("layout", 4)
def permute(make: Builder, x: Tensor) -> Tensor:
    """Permutes dimensions, usually followed by a copy."""
    plain(x)
    need(x.rank >= 3 and 1 not in x.shape)
    if make.random.random() < 0.6:
        one, other = make.random.choice([(1, 2), (1, -1), (-2, -1), (1, x.rank - 1)])
        order = list(range(x.rank))
        order[one], order[other] = order[other], order[one]
        shape, strides = permuted(x.shape, x.strides, tuple(order))
        turned = make.view("transpose.int", x, one, other, shape=shape, strides=strides)
    else:
        order = make.random.choice([[0, *range(2, x.rank), 1], [0, x.rank - 1, *range(1, x.rank - 1)]])
        shape, strides = permuted(x.shape, x.strides, tuple(order))
        turned = make.view("permute", x, order, shape=shape, strides=strides)
    return make.dense(turned) if make.random.random() < 0.75 else turned


@step("layout", 2)
def flip(make: Builder, x: Tensor) -> Tensor:
    plain(x)
    need(x.rank >= 2)
    dims = make.random.choice([[-1], [x.rank - 1], [1], [-1]] + [[2, 3], [2]] * (x.rank == 4))
    return make.view("flip", x, dims, shape=x.shape)


@step("layout", 2)
def roll(make: Builder, x: Tensor) -> Tensor:
    plain(x)
    need(x.rank >= 2 and x.last > 4)
    by = make.random.choice((1, -1, 2, 3, -2, 5))
    if x.rank == 4 and make.random.random() < 0.5:
        return make.view("roll", x, [by, -by], [2, 3], shape=x.shape)
    return make.view("roll", x, [by], [make.random.choice((-1, 1, x.rank - 1))], shape=x.shape)


@step("layout", 3)
def joined(make: Builder, x: Tensor) -> Tensor:
    """Joins tensors, with `cat` of two or three tensors or with `stack` of two."""
    plain(x)
    need(x.rank >= 2)
    other = partner(make, x)
    if make.random.random() < 0.25:
        dim = make.random.choice((1, -1))
        axis = dim if dim > 0 else x.rank
        shape = (*x.shape[:axis], 2, *x.shape[axis:])
        return make.add("stack", [x, other], dim, shape=shape, most=max(x.most, other.most))
    dim = make.random.choice((1, -1, x.rank - 1))
    parts = [x, other] if make.random.random() < 0.75 else [x, other, make.each("neg", x)]
    shape = tuple(size * len(parts) if axis == dim % x.rank else size for axis, size in enumerate(x.shape))
    return make.add("cat", parts, dim, shape=shape, most=max(x.most, other.most))


@step("layout", 3)
def padded(make: Builder, x: Tensor) -> Tensor:
    plain(x)
    need(x.rank >= 3 and all(3 < size < FREE for size in x.shape[2:]))
    count = make.random.randint(1, min(x.rank - 2, 3))
    amounts = [make.random.choice((0, 1, 1, 2, 3)) for _ in range(2 * count)]
    if make.random.random() < 0.6:
        amounts = [make.random.choice((1, 1, 2, 3))] * (2 * count)
    need(any(amounts))
    sizes = list(x.shape)
    for index in range(count):
        sizes[-1 - index] += amounts[2 * index] + amounts[2 * index + 1]
    mode = make.random.choice(("constant", "constant", "reflect", "replicate"))
    rest: tuple[object, ...] = (mode,)
    if mode == "constant":
        number = make.random.choice((None, None, None, 0.0, 1.0, -1.0, 0.5))
        rest = () if number is None else (mode, number)
        return make.add("pad", x, amounts, *rest, shape=tuple(sizes))
    need(count == x.rank - 2)
    return make.add("pad", x, amounts, *rest, shape=tuple(sizes))


@step("layout", 3)
def sliced(make: Builder, x: Tensor) -> Tensor:
    """Takes a slice of a dimension."""
    plain(x)
    need(x.rank >= 2 and 8 <= x.last < FREE)
    dim = make.random.choice([x.rank - 1, 1]) if x.shape[1] < FREE and x.shape[1] >= 8 else x.rank - 1
    size = x.shape[dim]
    start = make.random.choice((0, 0, 1, 2, size // 2, size // 4))
    end = make.random.choice((size // 2 + start if start else size // 2, size - 1, size - 2))
    step_ = make.random.choice((1, 1, 1, 2))
    need(0 <= start < end <= size)
    length = -(-(end - start) // step_)
    steps = list(contiguous(x.shape))
    steps[dim] *= step_
    shape = tuple(length if axis == dim else old for axis, old in enumerate(x.shape))
    args = (dim, start, end, step_) if step_ != 1 else (dim, start, end)
    return make.view("slice.Tensor", x, *args, shape=shape, strides=tuple(steps))


@step("layout", 1.5)
def repeated(make: Builder, x: Tensor) -> Tensor:
    plain(x)
    need(x.rank >= 2)
    if make.random.random() < 0.4:
        times, dim = make.random.choice((2, 3, 4)), make.random.choice((1, -1))
        shape = tuple(size * times if axis == dim % x.rank else size for axis, size in enumerate(x.shape))
        return make.add("repeat_interleave.self_int", x, times, dim, shape=shape)
    counts = [1] * x.rank
    counts[make.random.randrange(1, x.rank)] = make.random.choice((2, 3, 4))
    shape = tuple(size * count for size, count in zip(x.shape, counts, strict=True))
    return make.add("repeat", x, counts, shape=shape)


@step("layout", 1.5)
def shuffled(make: Builder, x: Tensor) -> Tensor:
    """Applies `pixel_shuffle` or `pixel_unshuffle`."""
    plain(x)
    need(x.rank == 4)
    _, channels, height, width = x.shape
    if channels % 4 == 0 and make.random.random() < 0.6:
        return make.add("pixel_shuffle", x, 2, shape=(x.shape[0], channels // 4, height * 2, width * 2))
    need(height % 2 == 0 and width % 2 == 0)
    return make.add("pixel_unshuffle", x, 2, shape=(x.shape[0], channels * 4, height // 2, width // 2))


@step("layout", 4)
def triangle(make: Builder, x: Tensor) -> Tensor:
    plain(x)
    need(x.rank >= 3 and x.shape[-2] == x.shape[-1] < FREE)
    diagonal = make.random.choice((0, 0, 1, -1))
    return make.add(make.random.choice(("tril", "tril", "triu")), x, *((diagonal,) if diagonal else ()))


@step("view", 2)
def flattened(make: Builder, x: Tensor) -> Tensor:
    plain(x)
    need(x.rank >= 3)
    start = make.random.choice((1, 1, 2) if x.rank == 4 else (1,))
    size = 1
    for part in x.shape[start:]:
        size *= part
    shape = (*x.shape[:start], size)
    return make.view("view", x, [literal(part) for part in shape], shape=shape)


@step("view", 2)
def split_heads(make: Builder, x: Tensor) -> Tensor:
    """Splits the last dimension into heads, usually with the heads moved to the front."""
    plain(x)
    need(2 <= x.rank <= 3 and x.last < FREE)
    counts = [count for count in (2, 4, 8, 12, 16) if x.last % count == 0 and x.last // count >= 8]
    need(bool(counts))
    heads = make.random.choice(counts)
    shape = (*x.shape[:-1], heads, x.last // heads)
    value = make.view("view", x, [literal(part) for part in shape], shape=shape)
    if x.rank == 3 and make.random.random() < 0.7:
        turned, strides = permuted(shape, None, (0, 2, 1, 3))
        value = make.dense(make.view("transpose.int", value, 1, 2, shape=turned, strides=strides))
    return value
