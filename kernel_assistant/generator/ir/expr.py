"""Scalar expressions over axes (loops of a kernel): the value that a graph computes in one iteration of these loops."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from kernel_assistant.generator.ir.sizes import Size, divide, mul

#: C type in which values of a dtype are computed.
COMPUTE = {
    "f64": "double",
    "f32": "float",
    "bf16": "float",
    "f16": "float",
    "i64": "int64_t",
    "i32": "int64_t",
    "i16": "int64_t",
    "i8": "int64_t",
    "u8": "int64_t",
    "b1": "bool",
}


class Axis:
    """One loop of a kernel, with `size` iterations. `parts` is None until the axis turns out to be the same loop as
    another axis, or to consist of several axes; it then holds these axes, which replace it.
    """

    __slots__ = ("parts", "size")

    def __init__(self, size: Size) -> None:
        self.size = size
        self.parts: tuple[Axis, ...] | None = None


Axes = tuple[Axis, ...]
#: The position in a flat buffer: offset + Σ coefficient·axis.
Index = dict[Axis, Size]


def resolve(axes: Axes) -> Axes:
    """Replaces each of `axes` that has `parts` by these, recursively. Returns the loops of the final kernel, outermost
    first.
    """
    if all(axis.parts is None for axis in axes):
        return axes
    resolved: list[Axis] = []
    for axis in axes:
        resolved.extend((axis,) if axis.parts is None else resolve(axis.parts))
    return tuple(resolved)


def split(axis: Axis, trailing: Size) -> None:
    """Divides `axis` into an outer and an inner axis, by setting `axis.parts`. The inner one has the size `trailing`,
    which must divide the size of `axis`."""
    leading = divide(axis.size, trailing)
    assert leading is not None
    axis.parts = (Axis(leading), Axis(trailing))


def resolve_index(index: Index) -> Index:
    """Returns `index` with each axis that has `parts` replaced by these. The new index computes the same buffer
    positions."""
    resolved: Index = {}
    for axis, coefficient in index.items():
        if axis.parts is None:
            resolved[axis] = coefficient
            continue
        step = coefficient
        for part in reversed(resolve(axis.parts)):
            resolved[part] = step
            step = mul(step, part.size)
    return resolved


#: Follows the name of a node in `Expr.node` for an intermediate value inside it.
INNER = "'"
_SERIAL = count()


@dataclass(eq=False, slots=True)
class Expr:
    """The base class of expressions. `ctype` is the C type of the value. `node` is the name of the graph's node that
    has this value; for an intermediate value inside a node, INNER follows the name. `serial` numbers the expressions in
    the order in which they are made, which is the order of the graph; a copy keeps the number of its original.
    """

    ctype: str
    node: str = field(default="", kw_only=True)
    serial: int = field(default_factory=_SERIAL.__next__, kw_only=True)


@dataclass(eq=False, slots=True)
class Load(Expr):
    """Reads buffer[offset + Σ coefficient·axis + Σ coefficient·term]. With an empty `buffer` the value is the position
    itself (an iota).

    `terms` are (coefficient, integer expression) pairs. Where the condition `guard` is false, the value is 0 and
    nothing is read.
    """

    buffer: str
    dtype: str
    index: Index
    offset: Size = 0
    terms: tuple[tuple[Size, Expr], ...] = ()
    guard: Expr | None = None


@dataclass(eq=False, slots=True)
class Const(Expr):
    """A literal, or a size as a number of type `ctype`."""

    value: float | int | bool | Size


@dataclass(eq=False, slots=True)
class Op(Expr):
    """An operation as C text, with {0}, {1}, … for the arguments."""

    text: str
    args: tuple[Expr, ...]


@dataclass(eq=False, slots=True)
class Reduce(Expr):
    """A reduction of `arg` over the loops `axes`; `kind` is sum, prod, max or min.

    `joint` is (name, x, first reduction) if one pass over x can compute this value together with the first reduction:
    ("m2", x, Σx): Σ(x - mean)², ("sumexp", x, max x): Σ exp(x - max).
    """

    kind: str
    arg: Expr
    axes: Axes
    joint: tuple[str, Expr, Reduce] | None = None


@dataclass(eq=False, slots=True)
class PrefixScan(Expr):
    """A cumulative operation of `arg` along `axis`, such as cumsum, from the end with `reverse`; `kind` is sum, prod,
    max, min or logaddexp. An `exclusive` scan leaves out the element itself: its first value is the neutral element of
    `kind`.
    """

    kind: str
    arg: Expr
    axis: Axis
    reverse: bool = False
    exclusive: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class Span:
    """One dimension of a pooling or convolution window. Output number `out` covers the positions stride·out +
    dilation·k - padding of the axis `source`, for 0 ≤ k < size. Positions outside [0, size of `source`) do not count.

    The axes `source` and `tap` occur only in the window's argument. `tap` is the loop over k, along which weights vary;
    it is None for windows without weights.
    """

    source: Axis
    out: Axis
    size: int
    stride: int
    dilation: int
    padding: int
    tap: Axis | None = None


@dataclass(eq=False, slots=True)
class Window(Expr):
    """A pooling or depthwise convolution: reduces `arg` over the positions that `spans` cover, one span for each
    dimension. `kind` is sum or max."""

    kind: str
    arg: Expr
    spans: tuple[Span, ...]


@dataclass(eq=False, slots=True)
class TensorExpr:
    """A tensor of the graph: the expression of an element and, for each dimension, the axes (loops) that run along it,
    none where the size is 1."""

    expr: Expr
    dims: tuple[Axes, ...]
    dtype: str


def children(expr: Expr) -> tuple[Expr, ...]:
    if isinstance(expr, Op):
        return expr.args
    if isinstance(expr, Load):
        guard = () if expr.guard is None else (expr.guard,)
        return (*[term for _, term in expr.terms], *guard) if expr.terms else guard
    return (expr.arg,) if isinstance(expr, (Reduce, PrefixScan, Window)) else ()


def named_inside(expr: Expr, node: str, known: dict[int, Expr]) -> None:
    """Marks `expr`, and the expressions from which it is computed, as intermediate values inside `node`, unless they
    already have a node. Skips expressions in `known`, and adds all others that it visits to `known`."""
    waiting = [expr]
    while waiting:
        one = waiting.pop()
        if id(one) not in known:
            known[id(one)] = one
            one.node = one.node or node + INNER
            waiting += children(one)


def ordered(roots: list[Expr]) -> list[Expr]:
    """Returns `roots` and all expressions from which they are computed, each once, in the order of the graph. Arguments
    come before the expressions that use them."""
    reached: dict[int, Expr] = {}
    waiting = list(reversed(roots))
    while waiting:
        expr = waiting.pop()
        if id(expr) not in reached:
            reached[id(expr)] = expr
            waiting += reversed(children(expr))
    done: set[int] = set()
    order: list[Expr] = []
    in_graph = sorted(reached.values(), key=lambda expr: expr.serial)
    stack: list[tuple[Expr, bool]] = [(expr, False) for expr in reversed(in_graph)]
    while stack:
        expr, ready = stack.pop()
        if id(expr) in done:
            continue
        if ready:
            done.add(id(expr))
            order.append(expr)
            continue
        stack.append((expr, True))
        stack.extend((child, False) for child in reversed(children(expr)))
    return order
