"""Replaces operators that sort, or that pick an element by its rank, by comparisons of all pairs of elements.

The rank of an element is the number of elements that come before it. The element at position k of the sorted tensor is
the sum of `rank == k ? value : 0`. This reads n² pairs for n elements, which is faster than sorting while n is small.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import Load, Op, TensorExpr, resolve
from kernel_assistant.generator.ir.literals import to_float32
from kernel_assistant.generator.ir.sizes import fixed, size_operands
from kernel_assistant.generator.lower.context import Context
from kernel_assistant.generator.lower.extremes import SHORT_TYPES, last_key, position
from kernel_assistant.generator.lower.node_writer import NodeWriter
from kernel_assistant.records import Node, TensorSpec
from kernel_assistant.records.graph import Operand

#: Most elements of which all pairs are compared.
MOST_COMPARED = 64
#: The internal operator of an integer for each element, whose order is that of the elements.
KEY = "ka_order_key"


def order_key(context: Context) -> TensorExpr:
    """Lowers `ka_order_key(value, dim, descending)`: of two elements along `dim`, the one that PyTorch's stable sort
    puts first has the smaller key. A NaN counts as the largest value. If `descending` is None, equal values have equal
    keys.

    Raises Unsupported for a value that is not read from memory: computed twice, an element may be rounded differently,
    and then it comes before itself.
    """
    value, dim = context.value(context.node.args[0]), context.node.args[1]
    if value.dtype not in SHORT_TYPES or value.dtype == "b1" or not isinstance(dim, int):
        raise Unsupported(f"the order of {value.dtype}")
    if not isinstance(value.expr, Load):
        raise Unsupported("the order of values that are not in memory")
    if context.node.args[2] is None:
        return context.result(Op("int64_t", "ka_key({0}, 0)", (value.expr,)), value.dims, "i64")
    axes = resolve(value.dims[dim])
    if context.node.args[2]:
        key = Op("int64_t", "-ka_key({0}, {1})", (value.expr, position(axes)))
        return context.result(key, value.dims, "i64")
    return context.result(last_key("max", value.expr, axes), value.dims, "i64")


@dataclass(frozen=True)
class _Elements:
    """The elements among which a node picks: `value` (an operand), its spec, the dimension and the number of elements
    along it."""

    value: Operand
    spec: TensorSpec
    dim: int
    count: int

    @property
    def floating(self) -> bool:
        return self.spec.dtype[0] in "fb"

    @property
    def size(self) -> str:
        """The number of elements as the shape has it."""
        return self.spec.shape[self.dim]

    @property
    def behind(self) -> int:
        """The number of dimensions behind the dimension."""
        return len(self.spec.shape) - self.dim - 1

    @property
    def kept(self) -> tuple[str, ...]:
        """The shape with size 1 along the dimension."""
        return (*self.spec.shape[: self.dim], "1", *self.spec.shape[self.dim + 1 :])

    def at(self, dim: int, size: str) -> tuple[str, ...]:
        """The shape with one dimension more, of size `size`, which becomes dimension `dim`."""
        return (*self.spec.shape[:dim], size, *self.spec.shape[dim:])


def _elements(writer: NodeWriter, dim: Operand) -> _Elements | None:
    """Returns the elements of the node's first argument along `dim`; along its only dimension if `dim` is None and it
    has one. Returns None if not all pairs can be compared."""
    value = writer.node.args[0]
    spec = writer.spec(value)
    rank = len(spec.shape)
    if dim is None and rank == 1:
        dim = 0
    if not isinstance(dim, int) or not rank or spec.dtype not in SHORT_TYPES or spec.dtype == "b1":
        return None
    count = fixed(spec.shape[dim % rank])
    if not isinstance(count, int) or not 0 < count <= MOST_COMPARED:
        return None
    return _Elements(value, spec, dim % rank, count)


class _Picker:
    """Writes the nodes that pick among elements."""

    def __init__(self, writer: NodeWriter, elements: _Elements, descending: bool = False) -> None:
        self._writer, self._of = writer, elements
        keys = writer.typed("i64", KEY, elements.value, elements.dim, descending, shape=elements.spec.shape)
        #: The rank of each element: how many others come before it.
        self.ranks = self._counted("lt.Tensor", keys)

    def equal(self) -> str:
        """Adds the number of elements that are equal to each element, itself included."""
        of = self._of
        return self._counted("eq.Tensor", self._writer.typed("i64", KEY, of.value, of.dim, None, shape=of.spec.shape))

    def _counted(self, compared: str, values: str) -> str:
        """Adds for each element the number of others whose value compares so with its own."""
        writer, of = self._writer, self._of
        mine = self._unsqueezed(values, "i64", of.dim + 1)
        others = self._unsqueezed(values, "i64", of.dim)
        true = writer.typed("b1", compared, others, mine, shape=of.at(of.dim, of.size))
        return writer.typed("i64", "sum.dim_IntList", true, [of.dim + 1], shape=of.spec.shape)

    def _unsqueezed(self, values: Operand, dtype: str, dim: int) -> str:
        """Adds a view of `values`, one for each element, with a new dimension `dim` of size 1."""
        return self._writer.typed(dtype, "unsqueeze", values, dim, shape=self._of.at(dim, "1"))

    def _range(self, size: str, behind: int) -> str:
        """Adds the numbers from 0 to `size` - 1 along a dimension that has `behind` dimensions of size 1 behind it."""
        (end,) = size_operands([size])
        numbers = self._writer.typed("i64", "arange", end, shape=(size,))
        return self._writer.view(numbers, (size, *("1",) * behind), "i64")

    def pick(self, ranks: Operand, keep_at: int | None) -> None:
        """Ends the replacement of an operator with one result for each row: the value of rank `ranks`, a number or an
        operand of shape `kept`, and its position. `keep_at` is the position of the argument `keepdim`, None if the
        result is one number of all elements."""
        writer, of = self._writer, self._of
        keep = keep_at is not None and bool(writer.argument(keep_at, "keepdim", False))
        op = "eq.Tensor" if isinstance(ranks, str) else "eq.Scalar"
        here = writer.typed("b1", op, self.ranks, ranks, shape=of.spec.shape)
        self._results(here, of.value, of.dim, of.spec.shape, keep)

    def first(self, count: str) -> None:
        """Ends the replacement of a sort: its first `count` values, and their positions."""
        writer, of = self._writer, self._of
        shape = of.at(of.dim, count)
        wanted = self._range(count, of.behind + 1)
        ranks = self._unsqueezed(self.ranks, "i64", of.dim)
        here = writer.typed("b1", "eq.Tensor", ranks, wanted, shape=shape)
        values = self._unsqueezed(of.value, of.spec.dtype, of.dim) if writer.wants(0) else of.value
        self._results(here, values, of.dim + 1, shape, False)

    def _results(self, here: str, values: Operand, dim: int, shape: tuple[str, ...], keep: bool) -> None:
        """Ends the replacement. Each result is a sum over `dim`, of the values or of their positions, where `here`, of
        shape `shape`, is true."""
        writer, of = self._writer, self._of
        if writer.wants(0):
            chosen = writer.typed(of.spec.dtype, "where.ScalarOther", here, values, 0, shape=shape)
            writer.result(0, "sum.dim_IntList", chosen, [dim], keep)
        if writer.wants(1):
            chosen = writer.typed("i64", "where.ScalarOther", here, self._range(of.size, of.behind), 0, shape=shape)
            writer.result(1, "sum.dim_IntList", chosen, [dim], keep)


def _sort(writer: NodeWriter) -> list[Node]:
    """sort(value, dim, descending) and sort.stable(value, stable, dim, descending)."""
    at = 2 if writer.node.op.endswith(".stable") else 1
    return _sorted(writer, writer.argument(at, "dim", -1), bool(writer.argument(at + 1, "descending", False)))


def _argsort(writer: NodeWriter) -> list[Node]:
    at = 2 if writer.node.op.endswith(".stable") else 1
    descending = bool(writer.argument(at + 1, "descending", False))
    return _sorted(writer, writer.argument(at, "dim", -1), descending, single=1)


def _msort(writer: NodeWriter) -> list[Node]:
    return _sorted(writer, 0, False, single=0)


def _sorted(writer: NodeWriter, dim: Operand, descending: bool, single: int | None = None) -> list[Node]:
    of = _elements(writer, dim)
    if of is None:
        return [writer.node]
    if not writer.returns(single):
        return []
    _Picker(writer, of, descending).first(of.size)
    return writer.nodes


def _topk(writer: NodeWriter) -> list[Node]:
    of = _elements(writer, writer.argument(2, "dim", -1))
    if of is None or not writer.argument(4, "sorted", True):
        return [writer.node]
    if not writer.returns(None):
        return []
    _Picker(writer, of, bool(writer.argument(3, "largest", True))).first(writer.node.spec.shape[of.dim])
    return writer.nodes


def _kthvalue(writer: NodeWriter) -> list[Node]:
    of, k = _elements(writer, writer.argument(2, "dim", -1)), writer.argument(1, "k")
    if of is None or not isinstance(k, int):
        return [writer.node]
    if not writer.returns(None):
        return []
    _Picker(writer, of).pick(k - 1, keep_at=3)
    return writer.nodes


def _median(writer: NodeWriter) -> list[Node]:
    """median: of an even number of values the lower one, the first NaN if there is one; nanmedian leaves NaNs out."""
    every = not writer.node.op.endswith(".dim")
    of = _elements(writer, None if every else writer.argument(1, "dim"))
    if of is None:
        return [writer.node]
    if not writer.returns(0 if every else None):
        return []
    picker, wanted = _Picker(writer, of), (of.count - 1) // 2
    rank: Operand = wanted
    if of.floating:
        nan = writer.typed("b1", "isnan", of.value, shape=of.spec.shape)
        nans = writer.typed("i64", "sum.dim_IntList", nan, [of.dim], True, shape=of.kept)
        if writer.node.op.startswith("nan"):
            half = writer.typed("i64", "rsub.Scalar", nans, of.count - 1, shape=of.kept)
            half = writer.typed("i64", "floor_divide", half, 2, shape=of.kept)
            rank = writer.typed("i64", "clamp_min", half, 0, shape=of.kept)
        else:
            some = writer.typed("b1", "gt.Scalar", nans, 0, shape=of.kept)
            first = writer.typed("i64", "rsub.Scalar", nans, of.count, shape=of.kept)
            rank = writer.typed("i64", "where.ScalarOther", some, first, wanted, shape=of.kept)
    picker.pick(rank, keep_at=None if every else 2)
    return writer.nodes


def _mode(writer: NodeWriter) -> list[Node]:
    """mode: the value that occurs most often, of several the smallest."""
    of = _elements(writer, writer.argument(1, "dim", -1))
    if of is None:
        return [writer.node]
    if not writer.returns(None):
        return []
    picker = _Picker(writer, of)
    counts = picker.equal()
    most = writer.typed("i64", "amax", counts, [of.dim], True, shape=of.kept)
    often = writer.typed("b1", "eq.Tensor", counts, most, shape=of.spec.shape)
    ranks = writer.typed("i64", "where.ScalarOther", often, picker.ranks, of.count, shape=of.spec.shape)
    picker.pick(writer.typed("i64", "amin", ranks, [of.dim], True, shape=of.kept), keep_at=2)
    return writer.nodes


def _quantile(writer: NodeWriter) -> list[Node]:
    """quantile with a number `q`, between two ranks linearly or in the middle."""
    node, q = writer.node, writer.argument(1, "q")
    of, between = _elements(writer, writer.argument(2, "dim")), node.kwargs.get("interpolation", "linear")
    if of is None or node.spec.dtype != "f32" or not isinstance(q, float) or between not in ("linear", "midpoint"):
        return [node]
    writer.returns(0)
    # PyTorch computes ranks in float32.
    rank = to_float32(to_float32(q) * (int(of.count) - 1))
    low, high = math.floor(rank), math.ceil(rank)
    picker, shape = _Picker(writer, of), node.spec.shape
    keep = bool(writer.argument(3, "keepdim", False))
    nan = writer.typed("b1", "isnan", of.value, shape=of.spec.shape)
    picked: list[str] = []
    for one in (low, high):
        here = writer.typed("b1", "eq.Scalar", picker.ranks, one, shape=of.spec.shape)
        here = writer.typed("b1", "logical_or", here, nan, shape=of.spec.shape)
        chosen = writer.typed("f32", "where.ScalarOther", here, of.value, 0, shape=of.spec.shape)
        picked.append(writer.typed("f32", "sum.dim_IntList", chosen, [of.dim], keep, shape=shape))
    # Of infinities, the same number twice is NaN, as in PyTorch.
    writer.result(0, "lerp.Scalar", *picked, 0.5 if between == "midpoint" and low < high else rank - low)
    return writer.nodes


ORDERED: dict[str, Callable[[NodeWriter], list[Node]]] = {
    "sort": _sort,
    "argsort": _argsort,
    "msort": _msort,
    "topk": _topk,
    "kthvalue": _kthvalue,
    **dict.fromkeys(("median", "nanmedian"), _median),
    "mode": _mode,
    "quantile": _quantile,
}
KEYS = {KEY: order_key}
