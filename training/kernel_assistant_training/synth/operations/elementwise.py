"""Elementwise steps of random tasks on one value: activations, functions, arithmetic with numbers, comparisons,
casts."""

from __future__ import annotations

import math

from kernel_assistant_training.synth import numbers
from kernel_assistant_training.synth.builder import Builder, Tensor
from kernel_assistant_training.synth.steps import Write, need, step

#: Largest magnitude that a value may have, by dtype.
LARGEST = {"f32": 1e12, "bf16": 1e12, "f16": 2e3}

#: Name → (weight, bound of the result over the bound of the operand, whether the result is positive).
_GROWS = {
    "relu": (5, 1.0, False),
    "silu": (4, 1.0, False),
    "gelu": (5, 1.0, False),
    "mish": (2, 1.0, False),
    "softplus": (2, 1.1, True),
    "hardswish": (2, 1.0, False),
    "relu6": (1.5, 1.0, False),
    "selu": (1.5, 1.1, False),
    "log_sigmoid": (1, 1.0, False),
    "abs": (2, 1.0, False),
    "neg": (1.5, 1.0, False),
}
#: Operators that give 0 for every negative value.
_RECTIFIERS = ("relu", "relu6", "hardswish")
_BOUNDED = {"sigmoid": (5, True), "tanh": (5, False), "hardsigmoid": (2, False), "erf": (1, False), "sin": (1, False)}


def _grows(op: str, factor: float, positive: bool) -> Write:
    def write(make: Builder, x: Tensor) -> Tensor:
        need(not (x.negative and op in _RECTIFIERS))
        return make.each(op, x, most=x.most * factor, positive=positive or (x.positive and op != "neg"))

    return write


def _bounded(op: str, positive: bool) -> Write:
    def write(make: Builder, x: Tensor) -> Tensor:
        need(x.most <= (20 if x.positive or x.negative else 200))  # the result would be 1 everywhere
        return make.each(op, x, most=1.0, positive=positive)

    return write


for _op, (_weight, _factor, _positive) in _GROWS.items():
    step("activation", _weight, _op)(_grows(_op, _factor, _positive))
for _op, (_weight, _positive) in _BOUNDED.items():
    step("activation", _weight, _op)(_bounded(_op, _positive))
step("activation", 1, "cos")(_bounded("cos", False))


@step("activation", 2)
def gelu_tanh(make: Builder, x: Tensor) -> Tensor:
    return make.each("gelu", x, more={"approximate": "tanh"})


@step("activation", 3)
def leaky_relu(make: Builder, x: Tensor) -> Tensor:
    slope = numbers.slope(make.random)
    return make.each("leaky_relu", x, *(() if slope == 0.01 else (slope,)))


@step("activation", 2)
def elu(make: Builder, x: Tensor) -> Tensor:
    alpha = numbers.alpha(make.random)
    return make.each(make.random.choice(("elu", "elu", "celu")), x, *(() if alpha == 1.0 else (alpha,)))


@step("activation", 2)
def hardtanh(make: Builder, x: Tensor) -> Tensor:
    low, high = _limits(make, x)
    return make.each("hardtanh", x, *_trimmed([low, high], [-1.0, 1.0]), most=max(abs(low), abs(high)))


@step("activation", 1)
def threshold(make: Builder, x: Tensor) -> Tensor:
    need(x.raw)
    return make.each(
        "threshold", x, make.random.choice((0.1, 0.0, -0.5, 0.5)), make.random.choice((20.0, 0.0, -1.0, 0.2))
    )


@step("function", 3)
def exp(make: Builder, x: Tensor) -> Tensor:
    need(x.most <= (7 if make.dtype == "f16" else 12))
    op = make.random.choice(("exp", "exp", "exp", "expm1", "exp2"))
    return make.each(op, x, most=math.exp(x.most), positive=op != "expm1")


@step("function", 3)
def root(make: Builder, x: Tensor) -> Tensor:
    op = make.random.choice(("sqrt", "sqrt", "rsqrt", "log", "log", "log1p"))
    if not x.positive:
        x = make.each("abs", x, positive=True) if make.random.random() < 0.5 else square(make, x)
    if op in ("log", "rsqrt"):
        x = make.each("add.Tensor", x, numbers.half_eps(make.random, make.dtype), positive=True)
    return make.each(op, x, most=1e3 if op == "rsqrt" else 30.0, positive=op in ("sqrt", "rsqrt", "log1p"))


@step("function", 3)
def square(make: Builder, x: Tensor) -> Tensor:
    need(x.most**2 <= LARGEST[make.dtype])
    if make.random.random() < 0.5:
        return make.each("pow.Tensor_Scalar", x, 2, most=x.most**2, positive=True)
    if make.random.random() < 0.5:
        return make.each("square", x, most=x.most**2, positive=True)
    return make.each("mul.Tensor", x, x, most=x.most**2, positive=True)


@step("function", 1)
def power(make: Builder, x: Tensor) -> Tensor:
    exponent = make.random.choice((3, 3.0, 4, 0.5, 1.5))
    need(x.most**3 <= LARGEST[make.dtype])
    if exponent in (0.5, 1.5):
        x = x if x.positive else make.each("abs", x, positive=True)
    return make.each("pow.Tensor_Scalar", x, exponent, most=x.most**exponent)


@step("function", 1)
def reciprocal(make: Builder, x: Tensor) -> Tensor:
    base = x if x.positive else square(make, x)
    above = make.each("add.Tensor", base, make.random.choice((1.0, 1, 0.5, 2.0)), most=base.most + 2, positive=True)
    return make.each("reciprocal", above, most=2.0, positive=True)


@step("function", 1)
def rounded(make: Builder, x: Tensor) -> Tensor:
    need(x.raw)
    return make.each(make.random.choice(("floor", "ceil", "round", "trunc", "sign", "frac")), x)


@step("function", 0.7)
def trigonometry(make: Builder, x: Tensor) -> Tensor:
    op = make.random.choice(("sinh", "cosh", "atan", "erfc", "asinh"))
    need(x.most <= 6)
    return make.each(op, x, most=math.cosh(x.most))


@step("arithmetic", 3)
def add_number(make: Builder, x: Tensor) -> Tensor:
    number = numbers.shift(make.random)
    return make.each(
        make.random.choice(("add.Tensor", "add.Tensor", "sub.Tensor")), x, number, most=x.most + abs(number)
    )


@step("arithmetic", 4)
def scale(make: Builder, x: Tensor) -> Tensor:
    number = numbers.scale(make.random)
    op = make.random.choice(("mul.Tensor", "mul.Tensor", "div.Tensor"))
    grown = x.most * (abs(number) if op == "mul.Tensor" else 1 / abs(number))
    need(grown <= LARGEST[make.dtype])
    return make.each(op, x, number, most=grown, positive=x.positive and number > 0)


@step("arithmetic", 2)
def from_number(make: Builder, x: Tensor) -> Tensor:
    number = make.random.choice((1.0, 1, 2.0, 0.5, 0.0))
    return make.each("rsub.Scalar", x, number, most=x.most + number)


@step("arithmetic", 3)
def clamp(make: Builder, x: Tensor) -> Tensor:
    low, high = _limits(make, x)
    kind = make.random.randrange(4)
    if kind == 0:
        return make.each("clamp", x, low, most=max(x.most, abs(low)), positive=low > 0)
    if kind == 1:
        return make.each("clamp", x, None, high, most=x.most + abs(high), positive=x.positive and high > 0)
    if kind == 2:
        return make.each("clamp_min", x, low, most=max(x.most, abs(low)), positive=low > 0)
    return make.each("clamp", x, low, high, most=max(abs(low), abs(high)), positive=low > 0)


@step("arithmetic", 2)
def affine(make: Builder, x: Tensor) -> Tensor:
    return add_number(make, scale(make, x))


@step("comparison", 3)
def piecewise(make: Builder, x: Tensor) -> Tensor:
    """Applies a function that is defined by two cases. If `x` has rounding errors the function is continuous: both
    cases agree at the limit 0."""
    need(not (x.positive or x.negative))
    limit = make.random.choice((0, 0, 0.5, -1.0, 0.1, 1.0)) if x.raw else 0
    above = make.each(make.random.choice(("gt.Scalar", "ge.Scalar")), x, limit, dtype="b1")
    other = make.each("mul.Tensor", x, numbers.slope(make.random))
    return make.each("where.self", above, x, other, dtype=x.dtype)


@step("comparison", 2)
def where_number(make: Builder, x: Tensor) -> Tensor:
    need(not (x.positive or x.negative))
    limit = _threshold(make) if x.raw else 0
    above = make.each(make.random.choice(("gt.Scalar", "lt.Scalar", "ge.Scalar", "le.Scalar")), x, limit, dtype="b1")
    number = make.random.choice((0.0, 1.0, -1.0, 0.5)) if x.raw else 0.0
    return make.each("where.ScalarOther", above, x, number, dtype=x.dtype)


@step("comparison", 2)
def masked_fill(make: Builder, x: Tensor) -> Tensor:
    need(not (x.positive or x.negative))
    limit = _threshold(make) if x.raw else 0
    beyond = make.each(make.random.choice(("gt.Scalar", "lt.Scalar")), x, limit, dtype="b1")
    number = make.random.choice((0.0, -5.0, 1.0, 0.5)) if x.raw else 0.0
    return make.each("masked_fill.Scalar", x, beyond, number, dtype=x.dtype)


@step("comparison", 1)
def indicator(make: Builder, x: Tensor) -> Tensor:
    need(x.raw)
    op = make.random.choice(("gt.Scalar", "lt.Scalar", "ge.Scalar", "le.Scalar"))
    above = make.each(op, x, _threshold(make), dtype="b1")
    if make.random.random() < 0.5:
        return make.each("mul.Tensor", x, above)
    return cast(make, above, make.dtype)


def cast(make: Builder, x: Tensor, dtype: str) -> Tensor:
    return x if x.dtype == dtype else make.cast(x, dtype)


@step("cast", 2)
def narrowed(make: Builder, x: Tensor) -> Tensor:
    need(x.dtype == "f32" and make.dtype == "f32")
    return cast(make, x, make.random.choice(("bf16", "f16")))


@step("cast", 3)
def widened(make: Builder, x: Tensor) -> Tensor:
    need(x.dtype in ("bf16", "f16"))
    return cast(make, x, "f32")


@step("cast", 2)
def returned(make: Builder, x: Tensor) -> Tensor:
    need(x.dtype == "f32" and make.dtype != "f32")
    return cast(make, x, make.dtype)


def _threshold(make: Builder) -> float:
    """Draws a threshold at random from a few numbers between -1 and 2. Values with a standard normal distribution lie
    on both sides of each of them."""
    return make.random.choice((0, 0, 0.5, 1.0, -1.0, -0.5, 0.1, 0.25, 2.0, 1))


def _limits(make: Builder, x: Tensor) -> tuple[float, float]:
    """Returns a lower and an upper bound for a clamp of `x`; part of the range of `x` lies between them. Raises Unfit
    if no such bounds were drawn."""
    need(not x.negative)
    if x.most <= 1.5:
        low = make.random.choice((0.0, 0.1, 0.2, 0.05) if x.positive else (0.0, -0.5, -0.1, -0.8))
        return low, round(low + make.random.choice((0.3, 0.5, 0.6)), 2)
    low, high = numbers.limits(make.random)
    need(high > 0 and (low <= 0 or not x.positive or x.most > 2 * low))
    return low, high


def _trimmed(args: list[float], defaults: list[float]) -> list[float]:
    """Returns the operands without those at the end that equal their defaults."""
    while args and args[-1] == defaults[len(args) - 1]:
        args = args[:-1]
    return args
