"""Several answers about one row, and what is found at a computed place: routers, decoders, statistics."""

from __future__ import annotations

from kernel_assistant_training.synth.branches import dressed, met, second
from kernel_assistant_training.synth.builder import Builder, Tensor
from kernel_assistant_training.synth.rows import last, reduced
from kernel_assistant_training.synth.sizes import FREE, rows_of
from kernel_assistant_training.synth.steps import need, plain, step

_SUMMARIES = ("amax", "amin", "mean.dim", "sum.dim_IntList", "logsumexp")
_END = (1 << 63) - 1


@step("several", 3)
def picked(make: Builder, x: Tensor) -> Tensor:
    """What stands where a row is largest or smallest: of the row as probabilities, with steps, or of another value. The
    place is at times a result too."""
    dim = last(make, x)
    # Halves and what rectifiers leave are often equal at several places.
    need(x.dtype == "f32" and not (x.positive or x.negative) and x.last > 2)
    keep = make.random.random() < 0.4
    op, shape = make.random.choice(("argmax", "argmax", "argmin")), rows_of(x.shape, (x.rank - 1,), keep)
    place = make.add(op, x, dim, *((True,) if keep else ()), shape=shape, dtype="i64", most=x.last)
    values = _values(make, x, dim)
    index = place if keep else _column(make, place)
    found = make.add("gather", values, dim, index, shape=index.shape, most=values.most, positive=values.positive)
    if make.random.random() < 0.5:
        make.results.append(place)
    if make.random.random() < 0.35:
        make.results.append(_summary(make, x, make.random.choice(_SUMMARIES), dim, False))
    return found if make.random.random() < 0.3 else make.view("squeeze.dim", found, -1, shape=x.shape[:-1])


def _values(make: Builder, x: Tensor, dim: int) -> Tensor:
    kind = make.random.random()
    if kind < 0.35:
        return make.add("softmax.int", x, dim, most=1.0, positive=True)
    if kind < 0.5:
        return make.add("log_softmax.int", x, dim, most=20.0 + 2 * x.most)
    return dressed(make, x, 1) if kind < 0.75 else second(make, x)


def _column(make: Builder, place: Tensor) -> Tensor:
    """place[:, None] or place.unsqueeze(-1)."""
    shape = (*place.shape, 1)
    if make.random.random() < 0.5 or place.shape[0] != FREE:
        return make.view("unsqueeze", place, make.random.choice((-1, place.rank)), shape=shape)
    place = make.view("slice.Tensor", place, 0, 0, _END, shape=place.shape)
    return make.view("unsqueeze", place, place.rank, shape=shape)


@step("several", 4)
def summaries(make: Builder, x: Tensor) -> Tensor:
    """Two or three reductions of one row, some with a step behind them: results side by side, or one value."""
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
    found = reduced(make, op, x, dim, keep)
    return dressed(make, found, 1) if make.random.random() < 0.35 else found
