"""Steps of random tasks with activations that people write by hand, from simpler operators."""

from __future__ import annotations

import math

from kernel_assistant_training.synth import numbers
from kernel_assistant_training.synth.builder import Builder, Tensor
from kernel_assistant_training.synth.operations.elementwise import LARGEST
from kernel_assistant_training.synth.steps import need, step


@step("idiom", 3)
def swish(make: Builder, x: Tensor) -> Tensor:
    inner = make.each("mul.Tensor", x, numbers.scale(make.random)) if make.random.random() < 0.5 else x
    return make.each("mul.Tensor", x, make.each("sigmoid", inner, most=1.0, positive=True), most=x.most)


@step("idiom", 1.5)
def gelu_by_hand(make: Builder, x: Tensor) -> Tensor:
    need(x.most**3 <= LARGEST[make.dtype])
    cube = make.each("pow.Tensor_Scalar", x, make.random.choice((3, 3.0)), most=x.most**3)
    sum_ = make.each("add.Tensor", x, make.each("mul.Tensor", cube, 0.044715))
    inner = make.each("mul.Tensor", sum_, math.sqrt(2.0 / math.pi))
    above = make.each("add.Tensor", make.each("tanh", inner, most=1.0), 1.0, most=2.0)
    return make.each("mul.Tensor", make.each("mul.Tensor", x, 0.5), above, most=x.most)


@step("idiom", 1)
def gelu_erf(make: Builder, x: Tensor) -> Tensor:
    inner = make.each("div.Tensor", x, math.sqrt(2.0))
    above = make.each("add.Tensor", make.each("erf", inner, most=1.0), 1.0, most=2.0)
    return make.each("mul.Tensor", make.each("mul.Tensor", x, 0.5), above, most=x.most)


@step("idiom", 1.5)
def mish_by_hand(make: Builder, x: Tensor) -> Tensor:
    soft = make.each("softplus", x, positive=True)
    return make.each("mul.Tensor", x, make.each("tanh", soft, most=1.0), most=x.most)


@step("idiom", 1.5)
def softsign(make: Builder, x: Tensor) -> Tensor:
    below = make.each("add.Tensor", make.each("abs", x, positive=True), 1, most=x.most + 1, positive=True)
    return make.each("div.Tensor", x, below, most=1.0)


@step("idiom", 1.5)
def squared_relu(make: Builder, x: Tensor) -> Tensor:
    need(x.most**2 <= LARGEST[make.dtype])
    rectified = make.each("relu", x, positive=False)
    if make.random.random() < 0.5:
        return make.each("pow.Tensor_Scalar", rectified, 2, most=x.most**2)
    return make.each("square", rectified, most=x.most**2)


@step("idiom", 1.5)
def hard_gate(make: Builder, x: Tensor) -> Tensor:
    moved = make.each("add.Tensor", make.each("mul.Tensor", x, make.random.choice((0.2, 1 / 6, 0.25))), 0.5)
    return make.each("mul.Tensor", x, make.each("clamp", moved, 0.0, 1.0, most=1.0), most=x.most)


@step("idiom", 1)
def tanh_shrink(make: Builder, x: Tensor) -> Tensor:
    return make.each("sub.Tensor", x, make.each("tanh", x, most=1.0))


@step("idiom", 1)
def log_cosh(make: Builder, x: Tensor) -> Tensor:
    twice = make.each("softplus", make.each("mul.Tensor", x, -2.0, most=2 * x.most), most=2 * x.most)
    return make.each("sub.Tensor", make.each("add.Tensor", x, twice), math.log(2.0), most=x.most + 1)


@step("idiom", 1)
def soft_cap(make: Builder, x: Tensor) -> Tensor:
    cap = make.random.choice((30.0, 50.0, 10.0, 5.0, 20.0))
    inner = make.each("tanh", make.each("div.Tensor", x, cap), most=1.0)
    return make.each("mul.Tensor", inner, cap, most=cap)


@step("idiom", 1)
def sine_squared(make: Builder, x: Tensor) -> Tensor:
    """Computes the Snake activation: x + sin²(ax) / a."""
    alpha = make.random.choice((0.5, 2.0, 1.5, 0.2))
    wave = make.each("sin", make.each("mul.Tensor", x, alpha), most=1.0)
    ripple = make.each("div.Tensor", make.each("pow.Tensor_Scalar", wave, 2, most=1.0), alpha, most=1 / alpha)
    return make.each("add.Tensor", x, ripple, most=x.most + 5)
