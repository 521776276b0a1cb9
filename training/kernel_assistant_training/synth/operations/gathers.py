"""Steps of random tasks that select rows and elements by indices."""

from __future__ import annotations

from kernel_assistant_training.synth.builder import Builder, Tensor, Unfit
from kernel_assistant_training.synth.sizes import FREE
from kernel_assistant_training.synth.steps import need, plain, step


def embedded(make: Builder, ids: Tensor, width: int) -> Tensor:
    """Returns the rows of a new embedding table that `ids` select, as at the beginning of a language model."""
    rows = make.random.choice((1000, 32000, 50257, 8192, 512, 30522, 128, 10000))
    table = make.param((rows, width))
    rest = (make.random.choice((0, 1)),) if make.random.random() < 0.15 else ()
    return make.add("embedding", table, ids, *rest, shape=(*ids.shape, width), dtype=make.dtype)


@step("gather", 3)
def with_rows(make: Builder, x: Tensor) -> Tensor:
    """Adds rows of an embedding table to `x`, as for positions or segments."""
    plain(x)
    need(x.rank >= 2 and 1 < x.last < FREE and x.shape[0] == FREE and len(make.inputs) < 4 and x.dtype == make.dtype)
    ids = make.input(x.shape[:-1], "i64")
    return make.each("add.Tensor", x, embedded(make, ids, x.last), most=x.most + 1)


@step("gather", 3)
def gather(make: Builder, x: Tensor) -> Tensor:
    """Selects elements of each row, and takes the difference to a reduction of the row, as in a hand-written cross
    entropy or margins of classes."""
    plain(x)
    need(x.rank >= 2 and 4 < x.last < FREE and x.shape[0] == FREE and len(make.inputs) < 4)
    count, dim = make.random.choice((1, 1, 1, 4, 8, 16)), make.random.choice((-1, x.rank - 1))
    ids = make.input((*x.shape[:-1], count), "i64")
    elements = make.add("gather", x, dim, ids, shape=ids.shape)
    op = make.random.choice(("logsumexp", "logsumexp", "amax", "mean.dim"))
    whole = make.add(op, x, [dim], True, shape=(*x.shape[:-1], 1), most=x.most + 10)
    pair = (whole, elements) if make.random.random() < 0.6 else (elements, whole)
    apart = make.each("sub.Tensor", *pair, most=2 * x.most + 10)
    if count == 1 and make.random.random() < 0.7:
        return make.view("squeeze.dim", apart, -1, shape=x.shape[:-1])
    return apart


@step("gather", 3)
def index_select(make: Builder, x: Tensor) -> Tensor:
    """Selects from one dimension of `x` by indices that a buffer contains."""
    plain(x)
    dims = [dim for dim in range(1, x.rank) if 4 < x.shape[dim] < FREE]
    if not dims:
        raise Unfit
    dim = make.random.choice(dims)
    count = make.random.choice((x.shape[dim] // 2, x.shape[dim], 7, 16))
    ids = make.buffer((count,), "i64")
    shape = tuple(count if axis == dim else size for axis, size in enumerate(x.shape))
    return make.add("index_select", x, dim, ids, shape=shape)
