"""Holds the state while the nodes of a graph are lowered to expressions, and defines the operations on axes (loops)
that the rules of all operators share."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import (
    COMPUTE,
    Axes,
    Axis,
    Const,
    Expr,
    Load,
    Op,
    TensorExpr,
    resolve,
    split,
)
from kernel_assistant.generator.ir.literals import decoded
from kernel_assistant.generator.ir.sizes import Size, divide, mul, parse_size, product
from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.graph import Operand, references


@dataclass(frozen=True, slots=True)
class Pieces:
    """The output of a `cat` or `stack` that is written by a store of its own for each of the joined values `exprs`.
    They are joined along dimension `place` and share the loops `dims`. Each has `size` elements along `place`; in a
    stack that is 1, and `dims` has no loop there."""

    exprs: tuple[Expr, ...]
    dims: tuple[Axes, ...]
    place: int
    size: Size = 1


class Context:
    """The state while a graph is lowered. `values` maps names to lowered tensors; `node` is the node that is being
    lowered. With `apart`, an output that joins several values (a `cat`) may be written by a store for each value if no
    node reads it."""

    def __init__(self, graph: OpGraph, apart: bool = False) -> None:
        self.graph = graph
        read = {name for node in graph.nodes for name in references(node)}
        self.may_be_apart = {name for name in graph.outputs if name not in read} if apart else set[str]()
        self.pieces: dict[str, Pieces] = {}
        self.values: dict[str, TensorExpr | tuple[TensorExpr, ...]] = {}
        self.sliced: dict[int, tuple[TensorExpr, int]] = {}
        self.shapes: list[tuple[Axes, ...]] = []
        self.node: Node

    def value(self, operand: Operand) -> TensorExpr:
        """Returns the tensor that `operand` names. Raises Unsupported if it names no tensor, or a node with several
        results."""
        if not isinstance(operand, str) or not operand.startswith("%"):
            raise Unsupported(f"{self.node.op} wants a tensor, got {operand!r}")
        value = self.values[operand[1:]]
        if isinstance(value, tuple):
            raise Unsupported(f"{self.node.op} reads all results of {operand[1:]}")
        return value

    def operand(self, operand: Operand, ctype: str) -> TensorExpr:
        """Returns the tensor that `operand` names; for a number or a size expression, a constant of C type `ctype`
        without dimensions. Raises Unsupported for None and for lists."""
        if isinstance(operand, str) and operand.startswith("%"):
            return self.value(operand)
        operand = decoded(operand, self.node.op)
        if isinstance(operand, str):
            return TensorExpr(Const(ctype, parse_size(operand)), (), "i64")
        if operand is None or isinstance(operand, list):
            raise Unsupported(f"{self.node.op} with operand {operand!r}")
        return TensorExpr(Const(ctype, operand), (), "f32")

    def argument(self, position: int, name: str, default: Operand = None) -> Operand:
        """Returns an argument of the current node by position or keyword; `default` if it is missing."""
        given = self.node.args[position] if position < len(self.node.args) else self.node.kwargs.get(name, default)
        return decoded(given, self.node.op)

    def number(self, position: int, name: str, default: float) -> float:
        value = self.argument(position, name, default)
        if value is None:
            return default
        if not isinstance(value, int | float):
            raise Unsupported(f"{self.node.op}: {name} is {value!r}, not a number")
        return value

    def result(self, expr: Expr, dims: tuple[Axes, ...], dtype: str = "") -> TensorExpr:
        self.shapes.append(dims)
        return TensorExpr(expr, dims, dtype or self.node.spec.dtype)


def cast(expr: Expr, ctype: str) -> Expr:
    """Converts `expr` to the C type `ctype`; returns `expr` itself if it has this type."""
    if expr.ctype == ctype:
        return expr
    if isinstance(expr, Const):
        return Const(ctype, expr.value)
    if ctype == "bool":
        return Op(ctype, "({0} != 0)", (expr,))
    return Op(ctype, f"({ctype}){{0}}", (expr,))


def source(name: str, spec: TensorSpec) -> TensorExpr:
    """Returns a graph input as a tensor that is loaded from its buffer, with one axis for each dimension whose size is
    not 1."""
    sizes = [parse_size(size) for size in spec.shape]
    strides = [parse_size(stride) for stride in spec.strides] if spec.strides is not None else contiguous(sizes)
    dims = tuple(() if size == 1 else (Axis(size),) for size in sizes)
    index = {dim[0]: stride for dim, stride in zip(dims, strides, strict=True) if dim}
    return TensorExpr(Load(COMPUTE[spec.dtype], name, spec.dtype, index, node=name), dims, spec.dtype)


def contiguous(sizes: list[Size]) -> list[Size]:
    strides: list[Size] = []
    step: Size = 1
    for size in reversed(sizes):
        strides.append(step)
        step = mul(step, size)
    return strides[::-1]


def unify(left: Axes, right: Axes) -> None:
    """Makes two non-empty lists of axes with the same total size refer to the same loops. Raises Unsupported if an axis
    would have to be split into sizes that do not divide it."""
    a, b = list(resolve(left)), list(resolve(right))
    while a and b:
        x, y = a.pop(0), b.pop(0)
        if x is y:
            continue
        if x.size == y.size:
            y.parts = (x,)
            continue
        big, small, rest = (x, y, a) if divide(x.size, y.size) is not None else (y, x, b)
        trailing = divide(big.size, small.size)
        if trailing is None:
            raise Unsupported("operands have dimensions that do not line up")
        split(big, trailing)
        assert big.parts is not None
        small.parts = (big.parts[0],)
        rest.insert(0, big.parts[1])
    if a or b:
        raise Unsupported("operands have different sizes")


def broadcast(*shapes: tuple[Axes, ...]) -> tuple[Axes, ...]:
    """Returns the axes of each dimension of the broadcast shape. Where several shapes have axes in a dimension, these
    become the same loops."""
    rank = max(len(shape) for shape in shapes)
    dims: list[Axes] = [()] * rank
    for shape in shapes:
        for dim, axes in enumerate(shape, rank - len(shape)):
            if axes and dims[dim]:
                if axes is not dims[dim]:
                    unify(dims[dim], axes)
            elif axes:
                dims[dim] = axes
    return tuple(dims)


def regroup(dims: tuple[Axes, ...], shape: tuple[Size, ...]) -> tuple[Axes, ...]:
    """Returns the axes of each dimension of a view with the sizes `shape`. Splits an axis where a dimension of `shape`
    ends inside it; raises Unsupported if that is impossible."""
    left = [axis for dim in dims for axis in resolve(dim)]
    groups: list[Axes] = []
    for size in shape:
        taken: list[Axis] = []
        need = size
        while need != 1:
            if not left:
                raise Unsupported("a view whose sizes cannot be matched")
            axis = left.pop(0)
            rest = divide(need, axis.size)
            if rest is None:
                trailing = divide(axis.size, need)
                if trailing is None:
                    raise Unsupported("a view that mixes dimensions")
                split(axis, trailing)
                assert axis.parts is not None
                left.insert(0, axis.parts[1])
                axis, rest = axis.parts[0], 1
            taken.append(axis)
            need = rest
        groups.append(tuple(taken))
    if left:
        raise Unsupported("a view whose sizes cannot be matched")
    return tuple(groups)


def dim_size(axes: Axes) -> Size:
    return product([axis.size for axis in axes])
