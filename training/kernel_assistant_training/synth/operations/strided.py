"""Steps of random tasks that reduce over a dimension other than the last, and steps that combine such reductions with
the value."""

from __future__ import annotations

from kernel_assistant_training.synth import numbers
from kernel_assistant_training.synth.builder import Builder, Tensor
from kernel_assistant_training.synth.operations.rows import reduced
from kernel_assistant_training.synth.sizes import FREE, rows_of
from kernel_assistant_training.synth.steps import need, plain, step


def middle(make: Builder, x: Tensor) -> int:
    plain(x)
    need(x.rank >= 3)
    dim = make.random.choice((1, 1, 1, -2, x.rank - 2))
    need(1 < x.shape[dim] < FREE)
    return dim


@step("strided", 5)
def over_middle(make: Builder, x: Tensor) -> Tensor:
    op = make.random.choices(("sum.dim_IntList", "mean.dim", "amax", "amin"), (4, 4, 3, 1))[0]
    return reduced(make, op, x, middle(make, x), make.random.random() < 0.5)


@step("strided", 2)
def softmax_middle(make: Builder, x: Tensor) -> Tensor:
    op = make.random.choice(("softmax.int", "softmax.int", "log_softmax.int"))
    return make.add(op, x, middle(make, x), most=1.0 if op == "softmax.int" else 20.0, positive=op == "softmax.int")


@step("strided", 2)
def norm_middle(make: Builder, x: Tensor) -> Tensor:
    """Divides by the root mean square or by the length over channels, as image models do."""
    dim = middle(make, x)
    square = make.each("pow.Tensor_Scalar", x, 2, most=x.most**2, positive=True)
    op = make.random.choice(("mean.dim", "mean.dim", "sum.dim_IntList"))
    below = make.each(
        "add.Tensor", reduced(make, op, square, dim, True), numbers.half_eps(make.random, make.dtype), positive=True
    )
    if make.random.random() < 0.5:
        return make.each("div.Tensor", x, make.each("sqrt", below, positive=True), most=8.0)
    return make.each("mul.Tensor", x, make.each("rsqrt", below, positive=True), most=8.0)


@step("strided", 1)
def centred_middle(make: Builder, x: Tensor) -> Tensor:
    return make.each("sub.Tensor", x, reduced(make, "mean.dim", x, middle(make, x), True), most=2 * x.most)


@step("strided", 1.5)
def position_middle(make: Builder, x: Tensor) -> Tensor:
    dim, keep = middle(make, x), make.random.random() < 0.3
    op = make.random.choice(("argmax", "argmin", "logsumexp", "logsumexp"))
    shape = rows_of(x.shape, (dim % x.rank,), keep)
    rest = (True,) if keep else ()
    if op == "logsumexp":
        return make.add(op, x, [dim], *rest, shape=shape, most=x.most + 10)
    return make.add(op, x, dim, *rest, shape=shape, dtype="i64")


@step("strided", 1)
def over_first(make: Builder, x: Tensor) -> Tensor:
    """Reduces over the batch dimension, as for the gradient of a bias or the statistics of a batch."""
    plain(x)
    need(x.rank == 2 and x.shape[0] == FREE and 1 < x.last < FREE)
    return reduced(make, make.random.choice(("sum.dim_IntList", "mean.dim", "amax")), x, 0, make.random.random() < 0.4)
