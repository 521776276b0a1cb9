"""Steps of random tasks that reduce rows to a number or a position, and steps that combine such reductions with the
rows."""

from __future__ import annotations

from kernel_assistant.records.graph import Operand
from kernel_assistant_training.synth.builder import Builder, Tensor
from kernel_assistant_training.synth.operations.broadcasting import partner
from kernel_assistant_training.synth.operations.rows import last, reduced
from kernel_assistant_training.synth.sizes import rows_of
from kernel_assistant_training.synth.steps import need, step


@step("rows", 8)
def reduction(make: Builder, x: Tensor) -> Tensor:
    op = make.random.choices(("sum.dim_IntList", "mean.dim", "amax", "amin"), (4, 4, 3, 2))[0]
    return reduced(make, op, x, last(make, x), make.random.random() < 0.5)


@step("rows", 2.5)
def product(make: Builder, x: Tensor) -> Tensor:
    dim = last(make, x)
    need(x.last <= 4096 and make.dtype == "f32")
    small = make.each("mul.Tensor", make.each("tanh", x, most=1.0), 0.1 if x.last <= 400 else 0.01)
    near = make.each("add.Tensor", small, 1.0, positive=True)
    keep = make.random.random() < 0.5
    shape = rows_of(x.shape, (dim % x.rank,), keep)
    return make.add("prod.dim_int", near, dim, *((True,) if keep else ()), shape=shape, most=100.0, positive=True)


@step("rows", 2)
def spread(make: Builder, x: Tensor) -> Tensor:
    dim, keep = last(make, x), make.random.random() < 0.5
    op = make.random.choice(("var.correction", "std.correction"))
    more: dict[str, Operand] = {} if make.random.random() < 0.5 else {"correction": 0}
    if keep:
        more["keepdim"] = True
    shape = rows_of(x.shape, (dim % x.rank,), keep)
    return make.add(op, x, [dim], shape=shape, most=x.most**2, positive=True, more=more)


@step("rows", 2)
def length(make: Builder, x: Tensor) -> Tensor:
    dim, keep = last(make, x), make.random.random() < 0.5
    order = make.random.choice((2, 2, 1))
    shape = rows_of(x.shape, (dim % x.rank,), keep)
    return make.add(
        "linalg_vector_norm", x, order, [dim], *((True,) if keep else ()), shape=shape, most=x.most * 64, positive=True
    )


@step("rows", 3)
def logsumexp(make: Builder, x: Tensor) -> Tensor:
    dim, keep = last(make, x), make.random.random() < 0.5
    shape = rows_of(x.shape, (dim % x.rank,), keep)
    return make.add("logsumexp", x, [dim], *((True,) if keep else ()), shape=shape, most=x.most + 10)


@step("rows", 2)
def centred(make: Builder, x: Tensor) -> Tensor:
    dim = last(make, x)
    op = make.random.choice(("mean.dim", "mean.dim", "amax"))
    return make.each("sub.Tensor", x, reduced(make, op, x, dim, True), most=2 * x.most)


@step("rows", 3)
def of_two(make: Builder, x: Tensor) -> Tensor:
    """Computes a dot product, distance or similarity of the rows of two tensors."""
    dim = last(make, x)
    other, kind, keep = partner(make, x), make.random.randrange(4), make.random.random() < 0.4
    if kind == 0:
        return reduced(make, "sum.dim_IntList", make.each("mul.Tensor", x, other, most=x.most * other.most), dim, keep)
    if kind == 1:
        shape = rows_of(x.shape, (dim % x.rank,), False)
        return make.add("cosine_similarity", x, other, *((dim,) if dim != 1 else ()), shape=shape, most=1.0)
    apart = make.each("sub.Tensor", x, other, most=x.most + other.most)
    if kind == 2:
        square = make.each("pow.Tensor_Scalar", apart, 2, most=apart.most**2, positive=True)
        op = make.random.choice(("sum.dim_IntList", "mean.dim"))
        return reduced(make, op, square, dim, keep)
    size = make.each("abs", apart, most=apart.most, positive=True)
    return reduced(make, make.random.choice(("sum.dim_IntList", "mean.dim", "amax")), size, dim, keep)


@step("arg", 3)
def position(make: Builder, x: Tensor) -> Tensor:
    dim, keep = last(make, x), make.random.random() < 0.3
    op = make.random.choice(("argmax", "argmax", "argmin"))
    shape = rows_of(x.shape, (dim % x.rank,), keep)
    return make.add(op, x, dim, *((True,) if keep else ()), shape=shape, dtype="i64", most=x.last)


@step("arg", 1)
def extreme(make: Builder, x: Tensor) -> Tensor:
    """Computes the largest or smallest value of each row; sometimes the task also returns the position of this
    value."""
    dim, keep = last(make, x), make.random.random() < 0.3
    op = make.random.choice(("max.dim", "max.dim", "min.dim"))
    shape = rows_of(x.shape, (dim % x.rank,), keep)
    both = make.add(op, x, dim, *((True,) if keep else ()), shape=shape)
    values = make.add("getitem", both, 0, shape=shape, most=x.most)
    if make.random.random() < 0.6:
        make.results.append(make.add("getitem", both, 1, shape=shape, dtype="i64"))
    return values


@step("arg", 1)
def count(make: Builder, x: Tensor) -> Tensor:
    dim = last(make, x)
    need(x.raw)
    above = make.each(
        make.random.choice(("gt.Scalar", "lt.Scalar")), x, make.random.choice((0, 0, 0.5, 1.0, -1.0, 0.1)), dtype="b1"
    )
    shape = rows_of(x.shape, (dim % x.rank,), False)
    return make.add("sum.dim_IntList", above, [dim], shape=shape, dtype="i64", most=x.last)
