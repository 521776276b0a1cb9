"""Describes values as strided views of buffers, which a library can read without a copy."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.operators import FREE
from kernel_assistant.generator.ir.sizes import Size, mul, parse_size, product, size_value
from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.graph import GraphInput, Operand

_SAME = frozenset("alias detach lift_fresh_copy identity dropout feature_dropout".split())
_RESHAPES = frozenset("view reshape _unsafe_view flatten unflatten view_as reshape_as".split())
_COPIES = frozenset("contiguous clone".split())
_VIEWS = frozenset("t transpose swapaxes permute unsqueeze squeeze expand expand_as broadcast_to".split())
#: Operators that are followed to what they look at.
VIEWS = _SAME | _RESHAPES | _COPIES | _VIEWS


@dataclass(frozen=True, slots=True)
class View:
    """A strided view of the buffer of the value `root`; it begins at the buffer's first element. Sizes and strides are
    in elements.
    """

    root: str
    dtype: str
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]

    def picked(self, order: list[int]) -> View:
        """Returns the view with only the dimensions whose indices are in `order`, in this order."""
        sizes, strides = tuple(self.sizes[at] for at in order), tuple(self.strides[at] for at in order)
        return View(self.root, self.dtype, sizes, strides)

    def is_laid_out(self, order: list[int]) -> bool:
        """Whether the view is dense in memory with its dimensions in this order, outermost first; `order` has their
        indices."""
        expected: Size = 1
        for at in reversed(order):
            if self.sizes[at] != 1 and self.strides[at] != expected:
                return False
            expected = mul(expected, self.sizes[at])
        return True

    @property
    def is_contiguous(self) -> bool:
        return self.is_laid_out(list(range(len(self.sizes))))


class Resolver:
    """Finds the buffer, sizes and strides that an operand has in memory, through operators such as `permute`. A value
    that is written to memory has a buffer with its own name."""

    def __init__(self, graph: OpGraph) -> None:
        self.dims = graph.dims
        self.nodes = {node.name: node for node in graph.nodes}
        self.given: dict[str, GraphInput] = {value.name: value for value in graph.inputs}
        self.outputs = frozenset(graph.outputs)

    def spec(self, name: str) -> TensorSpec:
        return self.nodes[name].spec if name in self.nodes else self.given[name].spec

    def view(self, operand: Operand) -> View:
        """Returns the view that an operand names. Raises Unsupported for an operand that is no tensor, or that would
        have to be copied.
        """
        if not isinstance(operand, str) or not operand.startswith("%"):
            raise Unsupported(f"{operand!r} is not a tensor")
        name = operand[1:]
        node = self.nodes.get(name)
        if node is None:
            return self.buffer(name)
        operator = node.op.partition(".")[0]
        if operator in VIEWS:
            return self._look(node)
        source = self.nodes.get(str(node.args[0])[1:]) if operator == "getitem" else node
        if source is not None and source.op.partition(".")[0] in FREE:
            raise Unsupported(f"{source.op} is not written to memory")
        return self.buffer(name)

    def view_or_none(self, operand: Operand) -> View | None:
        """Returns the view that an operand names; None where `view` raises Unsupported."""
        try:
            return self.view(operand)
        except Unsupported:
            return None

    def buffer(self, name: str) -> View:
        """Returns the buffer of a written value as a view. It has the strides of the value's spec if the value is an
        input or output, or if these strides are dense; otherwise it is contiguous.
        """
        spec = self.spec(name)
        sizes = tuple(parse_size(size) for size in spec.shape)
        strides = contiguous(sizes)
        if spec.strides is not None:
            given = tuple(parse_size(stride) for stride in spec.strides)
            if name in self.given or name in self.outputs or _dense(sizes, given, self.dims):
                strides = given
        return View(name, spec.dtype, sizes, strides)

    def _look(self, node: Node) -> View:
        name, source = node.op.partition(".")[0], self.view(node.args[0])
        wanted = tuple(parse_size(size) for size in node.spec.shape)
        if name in _SAME:
            if "dropout" in name and len(node.args) > 2 and node.args[2]:
                raise Unsupported("dropout while training")
            return source
        if name in _RESHAPES or name in _COPIES:
            if not source.is_contiguous or node.spec.dtype != source.dtype:
                raise Unsupported(f"{name} of a tensor that is not contiguous")
            return View(source.root, source.dtype, wanted, contiguous(wanted))
        if name in ("t", "transpose", "swapaxes"):
            return source.picked(_swapped(node, len(source.sizes)))
        if name == "permute":
            return source.picked([_integer(item) % len(source.sizes) for item in _list(node.args[1])])
        if name == "unsqueeze":
            dim = _integer(node.args[1]) % len(wanted)
            strides = (*source.strides[:dim], 1, *source.strides[dim:])
            return View(source.root, source.dtype, wanted, strides)
        if name == "squeeze":
            return _squeezed(node, source, wanted)
        return _expanded(source, wanted)


def contiguous(sizes: tuple[Size, ...]) -> tuple[Size, ...]:
    """Returns the strides, in elements, of a row-major tensor."""
    return tuple(product(sizes[at + 1 :]) for at in range(len(sizes)))


def _dense(sizes: tuple[Size, ...], strides: tuple[Size, ...], dims: dict[str, int]) -> bool:
    expected = 1
    pairs = [(size_value(step, dims), size_value(size, dims)) for step, size in zip(strides, sizes, strict=True)]
    for step, size in sorted(pair for pair in pairs if pair[1] != 1):
        if step != expected:
            return False
        expected *= size
    return True


def _swapped(node: Node, rank: int) -> list[int]:
    order = list(range(rank))
    one, other = (0, 1) if node.op.partition(".")[0] == "t" else (_integer(item) for item in node.args[1:3])
    if rank > 1:
        order[one % rank], order[other % rank] = order[other % rank], order[one % rank]
    return order


def _squeezed(node: Node, source: View, wanted: tuple[Size, ...]) -> View:
    if len(node.args) > 1:
        rank = len(source.sizes)
        gone = {_integer(item) % rank for item in _list(node.args[1]) if source.sizes[_integer(item) % rank] == 1}
    else:
        gone = {at for at, size in enumerate(source.sizes) if size == 1}
    view = source.picked([at for at in range(len(source.sizes)) if at not in gone])
    if view.sizes != wanted:
        raise Unsupported("squeeze of sizes that are not known")
    return view


def _expanded(source: View, wanted: tuple[Size, ...]) -> View:
    added = len(wanted) - len(source.sizes)
    strides: list[Size] = [0] * added
    for size, stride, goal in zip(source.sizes, source.strides, wanted[added:], strict=True):
        strides.append(stride if size == goal else 0)
    return View(source.root, source.dtype, wanted, tuple(strides))


def _list(operand: Operand) -> list[Operand]:
    return list(operand) if isinstance(operand, list) else [operand]


def _integer(operand: Operand) -> int:
    if isinstance(operand, bool) or not isinstance(operand, int):
        raise Unsupported(f"{operand!r} is not a known integer")
    return operand
