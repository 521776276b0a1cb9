"""Steps of random tasks with a second operand: a bias, a scale, a gate, a mask, another input, or an earlier value."""

from __future__ import annotations

from kernel_assistant.records.graph import Operand
from kernel_assistant_training.synth import numbers
from kernel_assistant_training.synth.builder import Builder, Tensor, Unfit
from kernel_assistant_training.synth.layouts import contiguous
from kernel_assistant_training.synth.operations.elementwise import LARGEST, cast
from kernel_assistant_training.synth.sizes import FREE, Shape
from kernel_assistant_training.synth.steps import need, step


def partner(make: Builder, x: Tensor) -> Tensor:
    """Returns another tensor with the shape and dtype of `x`: a new input or an earlier value. Raises Unfit if there is
    none and no input can be added."""
    earlier = [
        value
        for value in make.values
        if value.shape == x.shape and value.name != x.name and value.dtype == x.dtype and value.strides == x.strides
    ]
    if earlier and make.random.random() < 0.3:
        return make.random.choice(earlier)
    need(x.rank > 0 and x.shape[0] == FREE and x.floating and len(make.inputs) < 4)
    same = [value for value in make.extra if value.shape == x.shape and value.dtype == x.dtype and value.name != x.name]
    if same and make.random.random() < 0.6:
        return make.random.choice(same)
    other = make.input(x.shape, x.dtype)
    make.extra.append(other)
    return other


def weight(make: Builder, shape: Shape, dtype: str = "") -> Tensor:
    """Adds a parameter of this shape, or sometimes an input instead; returns its value."""
    if make.random.random() < 0.12 and len(make.inputs) < 4 and len(shape) == 1 and shape[0] > 1:
        return make.input(shape, dtype)
    return make.param(shape, dtype)


@step("binary", 5)
def with_other(make: Builder, x: Tensor) -> Tensor:
    other = partner(make, x)
    op = make.random.choices(("add.Tensor", "mul.Tensor", "sub.Tensor", "maximum", "minimum"), (5, 4, 3, 1, 1))[0]
    grown = x.most * other.most if op == "mul.Tensor" else x.most + other.most
    need(grown <= LARGEST[make.dtype])
    pair = (x, other) if make.random.random() < 0.8 else (other, x)
    return make.each(op, *pair, most=grown, positive=x.positive and other.positive and op != "sub.Tensor")


@step("binary", 1.5)
def scaled_sum(make: Builder, x: Tensor) -> Tensor:
    """Adds a scaled value: x + a·y or x − a·y, as `torch.add` or `torch.sub` with alpha, or as separate operators."""
    other, number = partner(make, x), numbers.scale(make.random)
    most = x.most + abs(number) * other.most
    if make.random.random() < 0.5 and number != 1:
        op = make.random.choice(("add.Tensor", "sub.Tensor"))
        return make.each(op, x, other, most=most, more={"alpha": number})
    return make.each("add.Tensor", x, make.each("mul.Tensor", other, number), most=most)


@step("binary", 1.5)
def quotient(make: Builder, x: Tensor) -> Tensor:
    other = partner(make, x)
    size = other if other.positive else make.each("abs", other, positive=True)
    below = make.each("add.Tensor", size, make.random.choice((1.0, 0.5, 1, 0.1)), positive=True)
    return make.each("div.Tensor", x, below, most=x.most * 10)


@step("binary", 1)
def interpolated(make: Builder, x: Tensor) -> Tensor:
    other = partner(make, x)
    kind = make.random.randrange(3)
    if kind == 0:
        return make.each("lerp.Scalar", x, other, make.random.choice((0.25, 0.5, 0.1, 0.9, 0.3)))
    third = partner(make, x)
    number = numbers.scale(make.random)
    most = x.most + abs(number) * other.most * third.most
    value: dict[str, Operand] = {} if number == 1 else {"value": number}
    if kind == 1:
        return make.each("addcmul", x, other, third, most=most, more=value)
    below = make.each("add.Tensor", make.each("abs", third, positive=True), 1.0, positive=True)
    return make.each("addcdiv", x, other, below, most=most, more=value)


@step("binary", 2)
def compared(make: Builder, x: Tensor) -> Tensor:
    other = partner(make, x)
    need(x.raw and other.raw)
    op = make.random.choice(("gt.Tensor", "lt.Tensor", "ge.Tensor"))
    above = make.each(op, x, other, dtype="b1")
    otherwise = other if make.random.random() < 0.5 else make.each("mul.Tensor", other, numbers.slope(make.random))
    return make.each("where.self", above, x, otherwise, dtype=x.dtype)


@step("gate", 4)
def gated(make: Builder, x: Tensor) -> Tensor:
    other = partner(make, x)
    op = make.random.choice(("sigmoid", "silu", "gelu", "tanh", "relu", "sigmoid"))
    gate = make.each(op, other, most=1.0 if op in ("sigmoid", "tanh") else other.most, positive=op == "sigmoid")
    pair = (gate, x) if make.random.random() < 0.5 else (x, gate)
    need(gate.most * x.most <= LARGEST[make.dtype])
    return make.each("mul.Tensor", *pair, most=gate.most * x.most)


@step("gate", 2)
def blended(make: Builder, x: Tensor) -> Tensor:
    """Blends `x` with another value y as g·x + (1 − g)·y, where g is the sigmoid of a third value."""
    other = partner(make, x)
    gate = make.each("sigmoid", partner(make, x), most=1.0, positive=True)
    left = make.each("mul.Tensor", gate, x, most=x.most)
    rest = make.each("rsub.Scalar", gate, make.random.choice((1, 1.0)), most=1.0)
    right = make.each("mul.Tensor", rest, other, most=other.most)
    return make.each("add.Tensor", left, right, most=x.most + other.most)


@step("gate", 2)
def halves(make: Builder, x: Tensor) -> Tensor:
    """Multiplies one half of the last dimension by a function of the other half, as gated linear units do."""
    need(x.strides is None and x.last < FREE and x.last % 2 == 0 and x.last >= 4 and x.rank >= 2)
    dim = make.random.choice((-1, x.rank - 1))
    if make.random.random() < 0.35:
        return make.add("glu", x, *(() if dim == -1 else (dim,)), shape=(*x.shape[:-1], x.last // 2))
    parts = pieces(make, x, x.last // 2, dim)
    op = make.random.choice(("silu", "gelu", "sigmoid", "relu", "silu"))
    left, right = parts if make.random.random() < 0.5 else parts[::-1]
    gate = make.each(op, left, most=1.0 if op == "sigmoid" else left.most)
    need(gate.most * right.most <= LARGEST[make.dtype])
    return make.each("mul.Tensor", gate, right, most=gate.most * right.most)


def pieces(make: Builder, x: Tensor, size: int, dim: int) -> tuple[Tensor, Tensor]:
    """Returns the two halves of the last dimension, in the form in which `chunk(2)` is exported. `size` is the size of
    a half."""
    shape, strides = (*x.shape[:-1], size), contiguous(x.shape)
    both = make.add("split.Tensor", x, size, dim, shape=shape, strides=strides, most=x.most)
    one = make.add("getitem", both, 0, shape=shape, strides=strides, most=x.most)
    other = make.add("getitem", both, 1, shape=shape, strides=strides, most=x.most)
    return one, other


@step("channel", 5)
def last_dimension(make: Builder, x: Tensor) -> Tensor:
    """Applies a bias, a scale or both along the last dimension."""
    need(x.rank >= 2 and 1 < x.last < FREE and x.floating)
    kind = make.random.randrange(4)
    if kind in (0, 2):
        w = weight(make, (x.last,), x.dtype)
        x = make.each("mul.Tensor", *_either(make, x, w), most=x.most * 1.5)
    if kind in (1, 2, 3):
        b = weight(make, (x.last,), x.dtype)
        x = make.each(make.random.choice(("add.Tensor", "add.Tensor", "sub.Tensor")), x, b, most=x.most + 1.5)
    return x


@step("channel", 4)
def channels(make: Builder, x: Tensor) -> Tensor:
    """Applies a bias, a scale or both for each channel (dimension 1)."""
    need(x.rank >= 3 and 1 < x.shape[1] < FREE and x.floating)
    shape = (*(() if make.random.random() < 0.6 else (1,)), x.shape[1], *[1] * (x.rank - 2))
    kind = make.random.randrange(3)
    if kind != 1:
        x = make.each("mul.Tensor", *_either(make, x, make.param(shape, x.dtype)), most=x.most * 1.5)
    if kind != 0:
        x = make.each("add.Tensor", x, make.param(shape, x.dtype), most=x.most + 1.5)
    return x


@step("channel", 1.5)
def viewed_channels(make: Builder, x: Tensor) -> Tensor:
    """Combines `x` with a parameter that has an element for each channel and is viewed as [1, C, 1, 1]."""
    need(x.rank >= 3 and 1 < x.shape[1] < FREE and x.floating)
    w = make.param((x.shape[1],), x.dtype)
    shape = (1, x.shape[1], *[1] * (x.rank - 2))
    size = [1, -1, *[1] * (x.rank - 2)] if make.random.random() < 0.7 else list(shape)
    wide = make.view("view", w, size, shape=shape)
    return make.each(make.random.choice(("mul.Tensor", "add.Tensor")), x, wide, most=x.most + 1.5)


@step("channel", 1.5)
def prelu(make: Builder, x: Tensor) -> Tensor:
    need(x.rank >= 2 and 1 < x.shape[1] < FREE and x.strides is None and x.floating)
    return make.add("prelu", x, make.param((make.random.choice((1, x.shape[1])),), x.dtype))


@step("scalar", 2)
def learned_scalar(make: Builder, x: Tensor) -> Tensor:
    need(x.rank >= 1 and x.floating)
    w = make.param(make.random.choice(((), (1,), (1,))), x.dtype)
    op = make.random.choice(("mul.Tensor", "mul.Tensor", "add.Tensor", "sub.Tensor"))
    return make.each(op, *_either(make, x, w, op == "mul.Tensor"), most=x.most * 1.5 + 1.5)


@step("scalar", 3)
def row_factor(make: Builder, x: Tensor) -> Tensor:
    """Applies a factor or an offset for each row, image or channel; the factors or offsets are an input of the task."""
    need(x.rank >= 2 and x.shape[0] == FREE and len(make.inputs) < 4 and x.floating)
    kept = make.random.randrange(1, x.rank)
    shape = (*x.shape[:kept], *[1] * (x.rank - kept))
    other = make.input(shape, x.dtype)
    if make.random.random() < 0.4:
        other = make.each("sigmoid", other, most=1.0, positive=True)
    op = make.random.choice(("mul.Tensor", "mul.Tensor", "add.Tensor", "sub.Tensor"))
    return make.each(op, x, other, most=x.most * max(other.most, 1.0) + 1)


@step("scalar", 2)
def table(make: Builder, x: Tensor) -> Tensor:
    """Adds a tensor to `x`, or multiplies by it, that all items of the batch share, such as position embeddings or a
    map of biases."""
    need(x.rank >= 3 and all(1 < size < FREE for size in x.shape[1:]) and x.floating)
    shape = (*((1,) if make.random.random() < 0.5 else ()), *x.shape[1:])
    w = make.param(shape, x.dtype) if make.random.random() < 0.7 else make.buffer(shape, x.dtype)
    return make.each(make.random.choice(("add.Tensor", "add.Tensor", "mul.Tensor")), x, w, most=x.most * 4)


@step("mask", 3)
def masked(make: Builder, x: Tensor) -> Tensor:
    """Applies a mask, which is an input and has the shape of `x` or the shape (B, 1, …, last)."""
    need(x.rank >= 2 and x.shape[0] == FREE and len(make.inputs) < 4 and x.floating)
    full = make.random.random() < 0.5
    shape = x.shape if full else (FREE, *[1] * (x.rank - 2), x.last)
    mask = make.input(shape, "b1")
    kind = make.random.randrange(4)
    if kind == 0:
        return make.each("mul.Tensor", x, mask)
    if kind == 1:
        return make.each("masked_fill.Scalar", x, mask, make.random.choice((0.0, 0, 1.0, -1.0)), dtype=x.dtype)
    if kind == 2:
        return make.each("where.ScalarOther", mask, x, make.random.choice((0.0, 1.0, -2.0)), dtype=x.dtype)
    return make.each("mul.Tensor", x, cast(make, mask, x.dtype))


@step("residual", 4)
def residual(make: Builder, x: Tensor) -> Tensor:
    """Combines `x` with an earlier value or an input of the same shape."""
    earlier = [
        value
        for value in (*make.values, *make.extra)
        if value.shape == x.shape and value.name != x.name and value.dtype == x.dtype and value.strides is None
    ]
    if not earlier or x.strides is not None:
        raise Unfit
    other = make.random.choice(earlier)
    op = make.random.choice(("add.Tensor", "add.Tensor", "add.Tensor", "mul.Tensor", "sub.Tensor"))
    need(x.most * other.most <= LARGEST[make.dtype])
    pair = (x, other) if make.random.random() < 0.5 else (other, x)
    return make.each(op, *pair, most=x.most * other.most if op == "mul.Tensor" else x.most + other.most)


def _either(make: Builder, x: Tensor, w: Tensor, commutes: bool = True) -> tuple[Tensor, Tensor]:
    return (w, x) if commutes and make.random.random() < 0.25 else (x, w)
