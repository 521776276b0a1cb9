"""Steps of random tasks along the last dimension: softmax, norms, reductions, and common combinations of these."""

from __future__ import annotations

import math

from kernel_assistant.records.graph import Operand
from kernel_assistant_training.synth import numbers
from kernel_assistant_training.synth.builder import Builder, Tensor
from kernel_assistant_training.synth.operations.elementwise import cast
from kernel_assistant_training.synth.sizes import FREE, literal, rows_of
from kernel_assistant_training.synth.steps import need, plain, step


def last(make: Builder, x: Tensor) -> int:
    """Returns the index of the last dimension, negative or not. Raises Unfit if `x` has no rows, that is, fewer than
    two dimensions or a last one of size 1."""
    plain(x)
    need(x.rank >= 2 and 1 < x.last < FREE)
    return make.random.choice((-1, -1, x.rank - 1))


def reduced(make: Builder, op: str, x: Tensor, dim: int, keep: bool) -> Tensor:
    """Adds the reduction operator `op` over the dimension `dim` and returns its result; `keep` is `keepdim`. It has the
    form that torch exports: `dim` is a list, and `keepdim` is written only if it is true."""
    shape = rows_of(x.shape, (dim % x.rank,), keep)
    grows = x.shape[dim] if x.positive or x.negative else 2 * math.sqrt(min(x.shape[dim], 1 << 40))
    most = x.most if op in ("mean.dim", "amax", "amin") else min(x.most * grows, 1e3)
    positive = x.positive and op in ("mean.dim", "sum.dim_IntList", "amax", "amin")
    return make.add(op, x, [dim], *((True,) if keep else ()), shape=shape, most=most, positive=positive)


@step("softmax", 5)
def softmax(make: Builder, x: Tensor) -> Tensor:
    return make.add("softmax.int", x, last(make, x), most=1.0, positive=True)


@step("softmax", 3)
def log_softmax(make: Builder, x: Tensor) -> Tensor:
    return make.add("log_softmax.int", x, last(make, x), most=20.0 + 2 * x.most)


@step("softmax", 2)
def tempered(make: Builder, x: Tensor) -> Tensor:
    dim = last(make, x)
    scaled = make.each(make.random.choice(("mul.Tensor", "div.Tensor")), x, abs(numbers.scale(make.random)))
    return make.add("softmax.int", scaled, dim, most=1.0, positive=True)


@step("softmax", 2)
def masked_softmax(make: Builder, x: Tensor) -> Tensor:
    dim = last(make, x)
    need(x.shape[0] == FREE and len(make.inputs) < 4)
    if make.random.random() < 0.5:
        mask = make.input((FREE, *[1] * (x.rank - 2), x.last), "b1")
        x = make.each("masked_fill.Scalar", x, mask, make.random.choice((-1e4, -1e4, -100.0)), dtype=x.dtype)
    else:
        x = make.each("add.Tensor", x, make.input((FREE, *[1] * (x.rank - 2), x.last), x.dtype))
    return make.add("softmax.int", x, dim, most=1.0, positive=True)


@step("softmax", 1)
def softmin(make: Builder, x: Tensor) -> Tensor:
    dim = last(make, x)
    return make.add("softmax.int", make.each("neg", x), dim, most=1.0, positive=True)


@step("softmax", 1)
def entropy(make: Builder, x: Tensor) -> Tensor:
    dim = last(make, x)
    share = make.add("softmax.int", x, dim, most=1.0, positive=True)
    logs = make.add("log_softmax.int", x, dim, most=20.0)
    total = reduced(make, "sum.dim_IntList", make.each("mul.Tensor", share, logs, most=20.0), dim, False)
    return make.each("neg", total, most=20.0)


@step("softmax", 1)
def softmax_by_hand(make: Builder, x: Tensor) -> Tensor:
    dim = last(make, x)
    lowered = make.each("sub.Tensor", x, reduced(make, "amax", x, dim, True))
    powers = make.each("exp", lowered, most=1.0, positive=True)
    return make.each("div.Tensor", powers, reduced(make, "sum.dim_IntList", powers, dim, True), most=1.0, positive=True)


@step("layer_norm", 5)
def layer_norm(make: Builder, x: Tensor) -> Tensor:
    last(make, x)
    several = x.rank >= 3 and x.shape[-2] < FREE and make.random.random() < 0.2
    shape = x.shape[-2:] if several else x.shape[-1:]
    number = 1e-5 if make.random.random() < 0.5 else numbers.eps(make.random)
    kind = make.random.random()
    w = make.param(shape, x.dtype) if kind < 0.85 else None
    b = make.param(shape, x.dtype) if kind < 0.75 else None
    args: list[object] = [x, list(shape), w, b, number]
    for default in (1e-5, None, None):
        if args[-1] != default:
            break
        args.pop()
    return make.add("layer_norm", *args, most=8.0)


@step("layer_norm", 1.5)
def standardized(make: Builder, x: Tensor) -> Tensor:
    """Standardizes rows by hand: (x − mean) / sqrt(var + eps)."""
    dim = last(make, x)
    centred = make.each("sub.Tensor", x, reduced(make, "mean.dim", x, dim, True))
    if make.random.random() < 0.5:
        square = make.each("pow.Tensor_Scalar", centred, 2, positive=True, most=x.most**2)
        spread = reduced(make, "mean.dim", square, dim, True)
    else:
        shape = rows_of(x.shape, (dim % x.rank,), True)
        more: dict[str, Operand] = {"correction": 0, "keepdim": True}
        spread = make.add("var.correction", x, [dim], shape=shape, positive=True, more=more)
    below = make.each("add.Tensor", spread, numbers.half_eps(make.random, make.dtype), positive=True)
    if make.random.random() < 0.5:
        return make.each("mul.Tensor", centred, make.each("rsqrt", below, positive=True), most=8.0)
    return make.each("div.Tensor", centred, make.each("sqrt", below, positive=True), most=8.0)


@step("layer_norm", 0.7)
def z_score(make: Builder, x: Tensor) -> Tensor:
    """Standardizes rows by hand: (x − mean) / (std + eps)."""
    dim = last(make, x)
    centred = make.each("sub.Tensor", x, reduced(make, "mean.dim", x, dim, True))
    shape = rows_of(x.shape, (dim % x.rank,), True)
    spread = make.add("std.correction", x, [dim], shape=shape, positive=True, more={"keepdim": True})
    below = make.each("add.Tensor", spread, numbers.half_eps(make.random, make.dtype), positive=True)
    return make.each("div.Tensor", centred, below, most=8.0)


@step("rms_norm", 5)
def rms_by_hand(make: Builder, x: Tensor) -> Tensor:
    """Computes an RMS norm by hand: x · rsqrt(mean(x²) + eps) · w. Half-precision values are often cast to float32
    first, as in Llama."""
    dim = last(make, x)
    own, half = x.dtype, x.dtype != "f32" and make.random.random() < 0.7
    wide = cast(make, x, "f32") if half else x
    if make.random.random() < 0.7:
        square = make.each("pow.Tensor_Scalar", wide, 2, most=x.most**2, positive=True)
    else:
        square = make.each("mul.Tensor", wide, wide, most=x.most**2, positive=True)
    mean = reduced(make, "mean.dim", square, dim, True)
    below = make.each("add.Tensor", mean, numbers.half_eps(make.random, own), positive=True)
    if make.random.random() < 0.75:
        normal = make.each("mul.Tensor", wide, make.each("rsqrt", below, positive=True), most=8.0)
    else:
        normal = make.each("div.Tensor", wide, make.each("sqrt", below, positive=True), most=8.0)
    normal = cast(make, normal, own) if half else normal
    if make.random.random() < 0.75:
        w = make.param((x.last,), own)
        normal = make.each("mul.Tensor", *((w, normal) if make.random.random() < 0.5 else (normal, w)), most=8.0)
    return normal


@step("rms_norm", 3)
def rms_norm(make: Builder, x: Tensor) -> Tensor:
    last(make, x)
    weight = make.param((x.last,), x.dtype) if make.random.random() < 0.8 else None
    number = None if make.random.random() < 0.2 else numbers.eps(make.random)
    args: list[object] = [x, [x.last], weight, number]
    while args[-1] is None:
        args.pop()
    return make.add("rms_norm", *args, most=8.0)


@step("rms_norm", 2)
def l2_normalize(make: Builder, x: Tensor) -> Tensor:
    dim = last(make, x)
    shape = rows_of(x.shape, (dim % x.rank,), True)
    length = make.add("linalg_vector_norm", x, 2, [dim], True, shape=shape, most=x.most * 64, positive=True)
    kind = make.random.randrange(3)
    if kind == 0:
        floor = make.each("clamp_min", length, make.random.choice((1e-12, 1e-12, 1e-6, 1e-8)), positive=True)
        wide = make.view("expand", floor, [literal(size) for size in x.shape], shape=x.shape, strides=_repeated(x))
        return make.each("div.Tensor", x, wide, most=1.0)
    if kind == 1:
        length = make.each("add.Tensor", length, numbers.half_eps(make.random, make.dtype), positive=True)
    return make.each("div.Tensor", x, length, most=1.0)


@step("rms_norm", 1.5)
def l1_normalize(make: Builder, x: Tensor) -> Tensor:
    dim = last(make, x)
    size = x if x.positive else make.each("abs", x, positive=True)
    total = reduced(make, make.random.choice(("sum.dim_IntList", "mean.dim")), size, dim, True)
    if make.random.random() < 0.6:
        total = make.each("add.Tensor", total, numbers.half_eps(make.random, make.dtype), positive=True)
    return make.each("div.Tensor", x, total, most=8.0)


@step("rms_norm", 1)
def fitted(make: Builder, x: Tensor) -> Tensor:
    """Scales rows to a fixed range: (x − min) / (max − min + eps), or x / max|x|."""
    dim = last(make, x)
    if make.random.random() < 0.5:
        top = reduced(make, "amax", make.each("abs", x, positive=True), dim, True)
        below = make.each("clamp_min", top, make.random.choice((1e-5, 1e-6, 1e-4)), positive=True)
        return make.each("div.Tensor", x, below, most=1.0)
    low, high = reduced(make, "amin", x, dim, True), reduced(make, "amax", x, dim, True)
    apart = make.each("sub.Tensor", high, low)
    span = make.each("add.Tensor", apart, numbers.half_eps(make.random, make.dtype), positive=True)
    return make.each("div.Tensor", make.each("sub.Tensor", x, low), span, most=1.0, positive=False)


def _repeated(x: Tensor) -> tuple[int, ...]:
    """Returns the strides of a column (size 1 in the last dimension, contiguous) after it is expanded to the shape of
    `x`."""
    steps, step_ = [0], 1
    for size in reversed(x.shape[:-1]):
        steps.append(step_)
        step_ *= size
    return tuple(reversed(steps))
