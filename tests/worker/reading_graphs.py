"""Random graphs of operators that take parts of their operands, move elements, or read windows and rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import torch

from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.graph import GraphInput
from kernel_assistant.worker.runner.pytorch.aten import Operator
from kernel_assistant.worker.runner.pytorch.tensors import DTYPES

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Unfit(Exception):
    """The step cannot be applied to the current value."""


def _require(fits: bool) -> None:
    if not fits:
        raise Unfit


class Chain:
    """A graph that grows by one operator at a time; each operator is run at once, to find the shape of its result."""

    def __init__(self, random: Random) -> None:
        self.random, self.inputs, self.nodes = random, list[GraphInput](), list[Node]()
        self.known: dict[str, Any] = {}

    def input(self, shape: list[int], dtype: str = "f32", kind: str = "input") -> str:
        letter = {"input": "x", "param": "p", "buffer": "b"}[kind]
        name = f"{letter}{sum(one.name[0] == letter for one in self.inputs)}"
        spec = TensorSpec(dtype=dtype, shape=tuple(map(str, shape)))
        self.inputs.append(GraphInput(name=name, spec=spec, kind=kind, path="" if kind == "input" else name))
        self.known[name] = torch.zeros(shape, dtype=DTYPES[dtype])
        return name

    def add(self, op: str, *args: Any, **kwargs: Any) -> str:
        name = f"n{len(self.nodes)}"
        node = {"name": name, "op": op, "args": list(args), "kwargs": kwargs}
        try:
            Operator(node, {}, "cpu")(self.known)
        except (RuntimeError, IndexError, ValueError) as error:
            raise Unfit from error
        made = self.known[name]
        first = made[0] if isinstance(made, (tuple, list)) else made
        _require(0 < first.numel() <= 4000)
        spec = TensorSpec(dtype=_NAMES[first.dtype], shape=tuple(map(str, first.shape)))
        self.nodes.append(Node(name=name, op=op, args=tuple(args), kwargs=kwargs, spec=spec))
        return name

    def shape(self, name: str) -> list[int]:
        return list(self.known[name].shape)

    def graph(self, outputs: list[str]) -> OpGraph:
        """The graph of the nodes that the outputs need."""
        used = set(outputs)
        for node in reversed(self.nodes):
            if node.name in used:
                flat = [one for arg in node.args for one in (arg if isinstance(arg, list) else [arg])]
                used |= {one[1:] for one in flat if isinstance(one, str) and one[0] == "%"}
        nodes = tuple(node for node in self.nodes if node.name in used)
        inputs = tuple(value for value in self.inputs if value.name in used)
        return OpGraph(dims={}, inputs=inputs, nodes=nodes, outputs=tuple(outputs))


Step = Callable[[Chain, str], str]


def drawn(random: Random) -> OpGraph:
    """A graph of two to six steps; sometimes with two branches from one value."""
    while True:
        chain = Chain(random)
        rank = random.choice((2, 3, 4, 4))
        x = chain.input([random.choice((2, 3))] + [random.choice((4, 6, 8, 9)) for _ in range(rank - 1)])
        if random.random() < 0.3:
            x = chain.add("sin", f"%{x}")
        ends = [_walk(chain, x, random.randint(1, 4)) for _ in range(random.choice((1, 1, 2)))]
        if all(end[0] == "n" for end in ends) and len(set(ends)) == len(ends):
            return chain.graph(ends)


def _walk(chain: Chain, x: str, count: int) -> str:
    for _ in range(count):
        if chain.shape(x):
            step = chain.random.choice(STEPS)
            with suppress(Unfit):
                x = step(chain, x)
    return x


def _dim(chain: Chain, x: str, least: int = 2) -> int:
    dims = [dim for dim, size in enumerate(chain.shape(x)) if size >= least]
    _require(bool(dims))
    return chain.random.choice(dims)


def sliced(chain: Chain, x: str) -> str:
    dim, random = _dim(chain, x), chain.random
    size = chain.shape(x)[dim]
    start = random.randrange(size - 1)
    end = random.randint(start + 1, size)
    return chain.add("slice.Tensor", f"%{x}", dim, start, end, random.choice((1, 1, 2, 3)))


def narrowed(chain: Chain, x: str) -> str:
    dim = _dim(chain, x)
    return chain.add(chain.random.choice(("narrow", "narrow_copy")), f"%{x}", dim, 1, chain.shape(x)[dim] - 1)


def pieces(chain: Chain, x: str) -> str:
    """Takes one or two of several pieces."""
    dim, random = _dim(chain, x, 4), chain.random
    op, rest = random.choice((("split.Tensor", 2), ("chunk", 3), ("tensor_split.sections", 3), ("unbind.int", None)))
    made = chain.add(op, f"%{x}", *([dim] if rest is None else [rest, dim]))
    chosen = random.sample(range(len(chain.known[made])), random.choice((1, 1, 2)))
    found = [chain.add("getitem", f"%{made}", place) for place in chosen]
    _require(len({tuple(chain.shape(one)) for one in found}) == 1)
    return chain.add("mul.Tensor", *(f"%{one}" for one in found)) if len(found) == 2 else found[0]


def parts_that_overlap(chain: Chain, x: str) -> str:
    dim = _dim(chain, x, 4)
    size = chain.shape(x)[dim]
    one, other = (chain.add("slice.Tensor", f"%{x}", dim, first, first + size - 3) for first in (0, 1))
    return chain.add("add.Tensor", f"%{one}", f"%{other}")


def gathered(chain: Chain, x: str) -> str:
    dim, shape = _dim(chain, x), chain.shape(x)
    shape[dim] = chain.random.choice((1, 2, 5))
    ids = chain.input(shape, "i64")
    if chain.random.random() < 0.5:
        return chain.add("take_along_dim", f"%{x}", f"%{ids}", dim)
    return chain.add("gather", f"%{x}", dim, f"%{ids}")


def picked(chain: Chain, x: str) -> str:
    dim = _dim(chain, x)
    ids = chain.input([chain.random.choice((1, 3, 12))], "i64", chain.random.choice(("input", "buffer")))
    if chain.random.random() < 0.5 and dim == 0:
        return chain.add("index.Tensor", f"%{x}", [f"%{ids}"])
    return chain.add("index_select", f"%{x}", dim, f"%{ids}")


def with_rows(chain: Chain, x: str) -> str:
    ids = chain.input(chain.shape(x)[:-1], "i64")
    table = chain.input([chain.random.choice((5, 40)), chain.shape(x)[-1]], kind="param")
    found = chain.add("embedding", f"%{table}", f"%{ids}", *chain.random.choice(((), (1,))))
    return chain.add("add.Tensor", f"%{x}", f"%{found}")


def diagonal(chain: Chain, x: str) -> str:
    _require(len(chain.shape(x)) >= 2)
    return chain.add("diagonal", f"%{x}", chain.random.choice((-1, 0, 1)), -2, -1)


def turned(chain: Chain, x: str) -> str:
    order = list(range(len(chain.shape(x))))
    chain.random.shuffle(order)
    return chain.add("clone", f"%{chain.add('permute', f'%{x}', order)}")


def reshaped(chain: Chain, x: str) -> str:
    shape = chain.shape(x)
    dim = chain.random.randrange(len(shape))
    if chain.random.random() < 0.5:
        return chain.add("view", f"%{x}", [*shape[:dim], -1, 2, *shape[dim + 1 :]])
    return chain.add("reshape", f"%{x}", [*shape[:dim], -1])


def moved(chain: Chain, x: str) -> str:
    dim = _dim(chain, x)
    if chain.random.random() < 0.5:
        return chain.add("flip", f"%{x}", [dim])
    return chain.add("roll", f"%{x}", [chain.random.choice((1, -2))], [dim])


def repeated(chain: Chain, x: str) -> str:
    wide = chain.add("expand", f"%{chain.add('unsqueeze', f'%{x}', 1)}", [-1, 3, *([-1] * (len(chain.shape(x)) - 1))])
    return chain.random.choice((wide, chain.add("repeat_interleave.self_int", f"%{x}", 2, _dim(chain, x))))


def padded(chain: Chain, x: str) -> str:
    """Pads; negative amounts cut elements off. The value is not zero: a product with zero depends on no operand."""
    low, high = chain.random.choice(((1, 1), (-1, 0), (-2, 1), (0, -2)))
    modes = ((), ("reflect",), ("replicate",)) if len(chain.shape(x)) == 3 and min(low, high) >= 0 else ((),)
    return chain.add("pad", f"%{x}", [low, high], *(chain.random.choice(modes) or ("constant", 0.7)))


def joined(chain: Chain, x: str) -> str:
    other = chain.input(chain.shape(x))
    return chain.add(chain.random.choice(("cat", "stack")), [f"%{x}", f"%{other}"], _dim(chain, x))


def windowed(chain: Chain, x: str) -> str:
    """Windows with gaps, with dilation, beyond the border, or not up to the end."""
    random, shape = chain.random, chain.shape(x)
    rank = len(shape) - 2
    _require(rank in (1, 2))
    kernel = [random.choice((1, 2, 3)) for _ in range(rank)]
    stride = [random.choice((1, 2, 3, 4)) for _ in range(rank)]
    padding = [random.choice((0, size // 2)) for size in kernel]
    kind = random.randrange(4)
    if kind == 0:
        return chain.add(f"avg_pool{rank}d", f"%{x}", kernel, stride, padding, random.random() < 0.3)
    dilation = [random.choice((1, 2, 3)) for _ in range(rank)]
    if kind == 1:
        groups = 2 if shape[1] % 2 == 0 else 1
        weight = chain.input([4, shape[1] // groups, *kernel], kind="param")
        return chain.add(f"conv{rank}d", f"%{x}", f"%{weight}", None, stride, [0] * rank, dilation, groups)
    return chain.add(f"max_pool{rank}d", f"%{x}", kernel, stride, padding, dilation, random.random() < 0.3)


def unfolded(chain: Chain, x: str) -> str:
    size, step = chain.random.choice(((2, 3), (1, 2), (3, 1), (3, 3)))
    if len(chain.shape(x)) == 4 and chain.random.random() < 0.6:
        return chain.add("im2col", f"%{x}", [size, size], [1, chain.random.choice((1, 2))], [0, 0], [step, step])
    return chain.add("unfold", f"%{x}", _dim(chain, x, 4), size, step)


def resized(chain: Chain, x: str) -> str:
    rank = len(chain.shape(x)) - 2
    size = [chain.random.choice((2, 3, 12)) for _ in range(rank)]
    if rank in (1, 2) and chain.random.random() < 0.6:
        return chain.add(f"upsample_nearest{rank}d.vec", f"%{x}", size, None)
    _require(rank == 2)
    return chain.add("upsample_bilinear2d.vec", f"%{x}", size, chain.random.random() < 0.5, None)


def chosen(chain: Chain, x: str) -> str:
    shape = [size if chain.random.random() < 0.7 else 1 for size in chain.shape(x)]
    mask, other = chain.input(shape, "b1"), chain.input(chain.shape(x))
    kind = chain.random.randrange(4)
    if kind == 0:
        return chain.add("masked_fill.Scalar", f"%{x}", f"%{mask}", 0.5)
    if kind == 1:
        return chain.add("mul.Tensor", f"%{x}", f"%{chain.add('_to_copy', f'%{mask}', dtype='f32')}")
    if kind == 2:
        return chain.add("where.ScalarOther", f"%{mask}", f"%{x}", 0.0)
    return chain.add("where.self", f"%{mask}", f"%{x}", f"%{other}")


_ALONG = ("softmax.int", "cumsum", "log_softmax.int", "argmax")
_OVER = ("sum.dim_IntList", "mean.dim", "amax", "logsumexp")


def of_rows(chain: Chain, x: str) -> str:
    dim = _dim(chain, x)
    op = chain.random.choice((*_ALONG, *_OVER))
    found = chain.add(op, f"%{x}", dim if op in _ALONG else [dim])
    return chain.add("_to_copy", f"%{found}", dtype="f32") if op == "argmax" else found


def with_positions(chain: Chain, x: str) -> str:
    op, *rest = chain.random.choice((("max.dim",), ("sort",), ("cummax",), ("topk", 2)))
    dim = _dim(chain, x)
    found = chain.add(op, f"%{x}", *rest, dim)
    return chain.add("getitem", f"%{found}", 0)


def normalized(chain: Chain, x: str) -> str:
    shape = chain.shape(x)
    if chain.random.random() < 0.5 and len(shape) > 2:
        groups = 2 if shape[1] % 2 == 0 else shape[1]
        weight, bias = (chain.input([shape[1]], kind="param") for _ in range(2))
        return chain.add("group_norm", f"%{x}", groups, f"%{weight}", f"%{bias}")
    _require(shape[-1] >= 2)
    weight = chain.input(shape[-1:], kind="param")
    return chain.add("layer_norm", f"%{x}", shape[-1:], f"%{weight}")


def multiplied(chain: Chain, x: str) -> str:
    shape = chain.shape(x)
    _require(len(shape) >= 2)
    weight = chain.input([5, shape[-1]], kind="param")
    if chain.random.random() < 0.5:
        return chain.add("linear", f"%{x}", f"%{weight}", f"%{chain.input([5], kind='param')}")
    return chain.add("matmul", f"%{x}", f"%{chain.input([*shape[1:-2], shape[-1], 3])}")


def by_channel(chain: Chain, x: str) -> str:
    _require(len(chain.shape(x)) >= 2)
    wide = chain.input([chain.shape(x)[1]] + [1] * (len(chain.shape(x)) - 2), kind="param")
    return chain.add("mul.Tensor", f"%{x}", f"%{wide}")


def likelihood(chain: Chain, x: str) -> str:
    _require(len(chain.shape(x)) == 2)
    target = chain.input(chain.shape(x)[:1], "i64")
    return chain.add("nll_loss_nd", f"%{x}", f"%{target}", None, chain.random.choice((0, 1)))


def filled(chain: Chain, x: str) -> str:
    """Adds operators, one of which uses only the shape of its operand."""
    shape, part = chain.add("ones_like", f"%{x}"), chain.add("sin", f"%{sliced(chain, x)}")
    return chain.add("add.Tensor", f"%{shape}", f"%{part}")


SHUFFLES = "pixel_shuffle", "pixel_unshuffle", "channel_shuffle"
STEPS: tuple[Step, ...] = (
    *(sliced, narrowed),
    lambda chain, x: chain.add("select.int", f"%{x}", _dim(chain, x), chain.random.choice((0, 1, -1))),
    *(pieces, parts_that_overlap, gathered, picked, with_rows),
    lambda chain, x: chain.add(chain.random.choice(("tril", "triu")), f"%{x}", chain.random.choice((-1, 0, 1, 2))),
    *(diagonal, turned, reshaped, moved, repeated),
    lambda chain, x: chain.add(chain.random.choice(SHUFFLES), f"%{x}", 2),
    *(padded, joined, windowed, windowed, windowed, unfolded, resized, chosen),
    *(of_rows, with_positions, normalized, multiplied),
    lambda chain, x: chain.add("glu", f"%{x}", _dim(chain, x)),
    *(by_channel, likelihood, filled),
)
