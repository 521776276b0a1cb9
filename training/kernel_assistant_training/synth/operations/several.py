"""Steps of random tasks with several results for each row, and steps that gather values at a computed position, as in
routers, decoders and statistics."""

from __future__ import annotations

from kernel_assistant_training.synth.builder import Builder, Tensor
from kernel_assistant_training.synth.operations.branches import dressed, met, second
from kernel_assistant_training.synth.operations.rows import last, reduced
from kernel_assistant_training.synth.sizes import FREE, rows_of
from kernel_assistant_training.synth.steps import need, plain, step

_SUMMARIES = ("amax", "amin", "mean.dim", "sum.dim_IntList", "logsumexp")
_END = (1 << 63) - 1


@step("several", 3)
def picked(make: Builder, x: Tensor) -> Tensor:
    """Finds the position of the largest or smallest element of each row, and gathers at this position from the row's
    softmax, from the row after some elementwise steps, or from another tensor. Sometimes the task returns the position
    too."""
    dim = last(make, x)
    # Half-precision values, and zeros after a rectifier, are often equal at several positions.
    need(x.dtype == "f32" and not (x.positive or x.negative) and x.last > 2)
    keep = make.random.random() < 0.4
    op, shape = make.random.choice(("argmax", "argmax", "argmin")), rows_of(x.shape, (x.rank - 1,), keep)
    position = make.add(op, x, dim, *((True,) if keep else ()), shape=shape, dtype="i64", most=x.last)
    values = _values(make, x, dim)
    index = position if keep else _column(make, position)
    value = make.add("gather", values, dim, index, shape=index.shape, most=values.most, positive=values.positive)
    if make.random.random() < 0.5:
        make.results.append(position)
    if make.random.random() < 0.35:
        make.results.append(_summary(make, x, make.random.choice(_SUMMARIES), dim, False))
    return value if make.random.random() < 0.3 else make.view("squeeze.dim", value, -1, shape=x.shape[:-1])


def _values(make: Builder, x: Tensor, dim: int) -> Tensor:
    kind = make.random.random()
    if kind < 0.35:
        return make.add("softmax.int", x, dim, most=1.0, positive=True)
    if kind < 0.5:
        return make.add("log_softmax.int", x, dim, most=20.0 + 2 * x.most)
    return dressed(make, x, 1) if kind < 0.75 else second(make, x)


def _column(make: Builder, position: Tensor) -> Tensor:
    """Returns the index tensor `position` with a last dimension of size 1, written as position[:, None] or
    position.unsqueeze(-1)."""
    shape = (*position.shape, 1)
    if make.random.random() < 0.5 or position.shape[0] != FREE:
        return make.view("unsqueeze", position, make.random.choice((-1, position.rank)), shape=shape)
    position = make.view("slice.Tensor", position, 0, 0, _END, shape=position.shape)
    return make.view("unsqueeze", position, position.rank, shape=shape)


@step("several", 4)
def summaries(make: Builder, x: Tensor) -> Tensor:
    """Computes two or three reductions of each row, and applies elementwise operators to some. The task returns them as
    several results, or two of them are combined."""
    plain(x)
    dim, keep = last(make, x), make.random.random() < 0.35
    need(x.floating)
    ops = make.random.sample(_SUMMARIES, make.random.choice((2, 2, 3)))
    every = [_summary(make, x, op, dim, keep) for op in ops]
    need(len({one.name for one in every}) == len(every))
    first, *rest = every
    if make.random.random() < 0.45:
        first = met(make, first, rest.pop())
    make.results += rest
    return first


def _summary(make: Builder, x: Tensor, op: str, dim: int, keep: bool) -> Tensor:
    value = reduced(make, op, x, dim, keep)
    return dressed(make, value, 1) if make.random.random() < 0.35 else value
