"""Steps of random tasks with branches: two or more values each pass through steps of their own, then they are combined.
Also gates, residuals, and several results."""

from __future__ import annotations

from kernel_assistant_training.synth import numbers
from kernel_assistant_training.synth.builder import Builder, Tensor, Unfit
from kernel_assistant_training.synth.layouts import contiguous
from kernel_assistant_training.synth.operations.broadcasting import partner
from kernel_assistant_training.synth.operations.elementwise import LARGEST
from kernel_assistant_training.synth.sizes import FREE
from kernel_assistant_training.synth.steps import STEPS, need, plain, step

#: Families of the steps inside a branch, and their weights.
_OWN = {"activation": 10, "arithmetic": 6, "function": 3, "idiom": 2, "channel": 4, "comparison": 1}
_NORMS = {"layer_norm": 5, "rms_norm": 5, "softmax": 2, "group_norm": 1}
#: Possible numbers of steps inside a branch.
_LENGTHS = (0, 1, 2)
_GATES = ("sigmoid", "silu", "gelu", "tanh", "sigmoid", "relu", "hardsigmoid", "softplus")


def dressed(make: Builder, x: Tensor, least: int = 0) -> Tensor:
    """Applies zero, one or two random elementwise steps to `x`, but at least `least` steps; returns the result, which
    has the shape of `x`."""
    (count,) = make.random.choices(_LENGTHS, (35, 45, 20))
    for _ in range(max(count, least)):
        x = _drawn(make, x, _OWN)
    return x


def _drawn(make: Builder, x: Tensor, families: dict[str, int]) -> Tensor:
    """Applies a random step (operators) of these families to `x`; returns the result. `families` has the weight of each
    family. Steps that change the shape or add an input are undone, and another step is tried; raises Unfit after eight
    tries."""
    for _ in range(8):
        (family,) = make.random.choices(list(families), list(families.values()))
        steps = STEPS[family]
        (chosen,) = make.random.choices(steps, [one.weight for one in steps])
        mark, inputs = make.mark(), len(make.inputs)
        try:
            value = chosen.write(make, x)
        except Unfit:
            make.back(mark)
            continue
        if value.shape == x.shape and value.floating and len(make.inputs) == inputs:
            return value
        make.back(mark)
    raise Unfit


def met(make: Builder, one: Tensor, other: Tensor) -> Tensor:
    """Combines two values with a random elementwise operator and returns the result; shapes broadcast. Raises Unfit if
    both are the same value, or if the result could get too large."""
    need(one.name != other.name)
    op = make.random.choices(list(_OFTEN), list(_OFTEN.values()))[0]
    if op == "div.Tensor":
        size = other if other.positive else make.each("abs", other, positive=True)
        other = make.each("add.Tensor", size, make.random.choice((1.0, 0.5, 1, 1e-2)), positive=True)
    grown = one.most * other.most if op == "mul.Tensor" else one.most + other.most
    grown = one.most * 10 if op == "div.Tensor" else grown
    need(grown <= LARGEST[make.dtype])
    pair = (one, other) if op == "div.Tensor" or make.random.random() < 0.6 else (other, one)
    return make.each(op, *pair, most=grown, positive=one.positive and other.positive and op != "sub.Tensor")


_OFTEN = {
    "add.Tensor": 6.0,
    "mul.Tensor": 5.0,
    "sub.Tensor": 3.0,
    "div.Tensor": 1.0,
    "maximum": 0.7,
    "minimum": 0.7,
    "fmax": 0.2,
    "fmin": 0.2,
    "logaddexp": 0.2,
}


def second(make: Builder, x: Tensor) -> Tensor:
    """Returns a second operand with the shape and dtype of `x`: a new input or an earlier value. Raises Unfit if `x` is
    not contiguous."""
    need(x.strides is None)
    return partner(make, x)


@step("branch", 6)
def two(make: Builder, x: Tensor) -> Tensor:
    other = second(make, x)
    return met(make, dressed(make, x), dressed(make, other, 1))


@step("branch", 4)
def three(make: Builder, x: Tensor) -> Tensor:
    """Combines three values, `x` among them, as a ∘ (b ∘ c) or (a ∘ b) ∘ c, with random operators ∘."""
    every = [dressed(make, one) for one in (x, second(make, x), second(make, x))]
    make.random.shuffle(every)
    first, then, last = every
    if make.random.random() < 0.5:
        return met(make, first, met(make, then, last))
    return met(make, met(make, first, then), last)


@step("branch", 4)
def twice(make: Builder, x: Tensor) -> Tensor:
    """Passes `x` through two branches and combines the results."""
    plain(x)
    return met(make, dressed(make, x, 1), dressed(make, x))


@step("branch", 5)
def with_vectors(make: Builder, x: Tensor) -> Tensor:
    """Combines `x` with one or two other values. Each value may first get a bias or scale, and random elementwise
    operators of its own."""
    plain(x)
    need(x.rank >= 2)
    every = [x, second(make, x), *([second(make, x)] if make.random.random() < 0.5 else [])]
    along = make.random.random() < 0.7 or x.rank < 3
    need(1 < (x.last if along else x.shape[1]) < FREE)
    shape = (x.last,) if along else (x.shape[1], *[1] * (x.rank - 2))
    total: Tensor | None = None
    for number, one in enumerate(every):
        if number == 0 or make.random.random() < 0.8:
            op = make.random.choice(("add.Tensor", "add.Tensor", "mul.Tensor"))
            one = make.each(op, one, make.param(shape, x.dtype), most=one.most * 1.5 + 1.5)
        one = dressed(make, one) if make.random.random() < 0.5 else one
        total = one if total is None else met(make, total, one)
    assert total is not None
    return total


@step("branch", 4)
def gate_after_steps(make: Builder, x: Tensor) -> Tensor:
    """Combines `x` and another value as a · f(b), after elementwise steps on a and b."""
    other = second(make, x)
    value, gate = (x, other) if make.random.random() < 0.5 else (other, x)
    value, gate = dressed(make, value), dressed(make, gate, 1)
    op = make.random.choice(_GATES)
    narrow = op in ("sigmoid", "tanh", "hardsigmoid")
    need(gate.most <= 200 and not (gate.negative and op == "relu"))
    gate = make.each(op, gate, most=1.0 if narrow else gate.most, positive=op in ("sigmoid", "softplus"))
    need(gate.most * value.most <= LARGEST[make.dtype])
    pair = (gate, value) if make.random.random() < 0.5 else (value, gate)
    return make.each("mul.Tensor", *pair, most=gate.most * value.most)


@step("branch", 4)
def scaled_residual(make: Builder, x: Tensor) -> Tensor:
    """Computes other + scale · f(x), where the scale is a literal, a learned number or a learned vector."""
    need(x.rank >= 2 and 1 < x.last < FREE)
    other, own = second(make, x), dressed(make, x)
    kind = make.random.randrange(4)
    if kind == 0:
        scale: Tensor | float = numbers.scale(make.random)
    elif kind == 1:
        scale = make.param(make.random.choice(((), (1,))), x.dtype)
    else:
        narrow = kind == 2 or x.rank < 3 or not 1 < x.shape[1] < FREE
        scale = make.param((x.last,) if narrow else (x.shape[1], *[1] * (x.rank - 2)), x.dtype)
    pair = (scale, own) if isinstance(scale, Tensor) and make.random.random() < 0.5 else (own, scale)
    scaled = make.each("mul.Tensor", *pair, most=own.most * 1.5)
    both = (other, scaled) if make.random.random() < 0.6 else (scaled, other)
    return make.each("add.Tensor", *both, most=scaled.most + other.most)


@step("branch", 5)
def around_norm(make: Builder, x: Tensor) -> Tensor:
    """Adds another value to `x` and normalizes the sum, which may also be an output; or normalizes `x` and combines the
    result with another value."""
    plain(x)
    need(x.rank >= 2)
    if make.random.random() < 0.5:
        other = dressed(make, second(make, x))
        total = make.each("add.Tensor", *((x, other) if make.random.random() < 0.6 else (other, x)))
        if make.random.random() < 0.4:
            make.results.append(total)
        return _drawn(make, total, _NORMS)
    normal = _drawn(make, x, _NORMS)
    need(normal.dtype == x.dtype)
    own = dressed(make, normal)
    return met(make, own, x if make.random.random() < 0.5 else second(make, x))


@step("branch", 2.5)
def chosen(make: Builder, x: Tensor) -> Tensor:
    """Selects elements from two values by a mask, which is an input; random elementwise operators are first applied to
    each value."""
    plain(x)
    need(x.rank >= 2 and x.shape[0] == FREE and len(make.inputs) < 4)
    full = make.random.random() < 0.5
    shape = x.shape if full else (*x.shape[:1], *(make.random.choice((1, size)) for size in x.shape[1:]))
    mask = make.input(shape, "b1")
    one, other = dressed(make, x), dressed(make, second(make, x) if make.random.random() < 0.6 else x, 1)
    need(one.name != other.name and one.dtype == other.dtype)
    pair = (one, other) if make.random.random() < 0.5 else (other, one)
    return make.each("where.self", mask, *pair, dtype=one.dtype, most=max(one.most, other.most))


@step("branch", 4)
def chunks(make: Builder, x: Tensor) -> Tensor:
    """Splits a dimension of `x` into two to four equal parts, applies random elementwise operators to each part and
    combines the results."""
    plain(x)
    need(x.rank >= 2)
    count = make.random.choice((2, 2, 3, 4))
    dims = [dim for dim in (x.rank - 1, 1) if x.shape[dim] < FREE and x.shape[dim] % count == 0 < x.shape[dim] // count]
    need(bool(dims))
    dim = make.random.choice(dims)
    size, steps = x.shape[dim] // count, contiguous(x.shape)
    need(size > 1)
    shape = tuple(size if index == dim else whole for index, whole in enumerate(x.shape))
    written = dim - x.rank if make.random.random() < 0.6 else dim
    both = make.add("split.Tensor", x, size, *((written,) if written else ()), shape=shape, strides=steps)
    parts = [make.add("getitem", both, index, shape=shape, strides=steps, most=x.most) for index in range(count)]
    make.random.shuffle(parts)
    total = dressed(make, parts[0], 1)
    for part in parts[1:]:
        total = met(make, total, dressed(make, part))
    return total


@step("branch", 3)
def two_results(make: Builder, x: Tensor) -> Tensor:
    """Computes two results from `x`. The task returns both."""
    plain(x)
    other = dressed(make, x, 1) if make.random.random() < 0.6 else met(make, x, dressed(make, second(make, x)))
    make.results.append(other)
    first = dressed(make, x, 1)
    need(first.name != other.name)
    return first
