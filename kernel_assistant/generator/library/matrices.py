"""Prepares products for a library that requires an even distance between the matrices of a batch: `matmul` in which
both operands are broadcast, `einsum` with labels in any order. Adds views with the operands' dimensions in the order of
a batched product; `copies.py` then makes copies of these views."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.generator.ir.operators import COPY, operator
from kernel_assistant.generator.ir.sizes import parse_size, size_operands
from kernel_assistant.generator.library.products import MATMULS
from kernel_assistant.generator.loops.strided import View, contiguous
from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.graph import Operand

#: Products whose matrices may lie at any distances.
SPREAD = (*MATMULS, "einsum")


@dataclass(frozen=True, slots=True)
class _Groups:
    """The labels of a batched product. `batch`: labels of both operands and the result; `own`: labels of the result
    that only the left operand has, and those that only the right operand has; `inner`: labels that are summed over."""

    batch: str
    own: tuple[str, str]
    inner: str

    def order(self, index: int, labels: str) -> str:
        """Returns the labels of operand `index` (0: left, 1: right) in the order of a batch of matrices. The label that
        is last in memory stays last unless it is a batch label, so that a copy reads and writes along it.
        """
        own = self.own[index]
        return self.batch + (own + self.inner if labels[-1:] in self.inner else self.inner + own)


class _Nodes:
    """Collects the nodes of a new graph in order. Equal views become one node, so that they are copied once."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._views: dict[str, str] = {}

    def view(self, name: str, op: str, operand: Operand, argument: Operand, spec: TensorSpec) -> str:
        """Adds a node `name` for the view `op`(operand, argument), unless there is an equal view. Returns the operand
        that names the view, such as `%n1_expand0`."""
        key = f"{op}({operand}, {argument})"
        if key not in self._views:
            self.nodes.append(Node(name=name, op=op, args=(operand, argument), spec=spec))
            self._views[key] = f"%{name}"
        return self._views[key]

    def permuted(self, name: str, operand: Operand, spec: TensorSpec, labels: str, order: str) -> str:
        """Adds a view of `operand` whose dimensions, labelled `labels`, are in the order `order`. Returns the operand
        that names the view, or `operand` itself if both orders are the same."""
        if labels == order:
            return str(operand)
        permutation: Operand = [labels.index(label) for label in order]
        shape = tuple(spec.shape[labels.index(label)] for label in order)
        return self.view(name, "permute", operand, permutation, TensorSpec(dtype=spec.dtype, shape=shape))


def with_matrices(graph: OpGraph, calls: set[str]) -> OpGraph:
    """Returns the graph with views in place of the operands of the products `calls` (names of nodes). Each view has one
    matrix for each matrix of the result.

    A library can repeat an operand's matrices along all leading dimensions or along none, and needs an even distance
    between the matrices in memory.
    """
    made = _Nodes()
    for node in graph.nodes:
        if node.name not in calls:
            made.nodes.append(node)
        elif operator(node) == "einsum":
            _add_of_labels(made, node, graph)
        else:
            _add_of_matrices(made, node, graph)
    return OpGraph(dims=graph.dims, inputs=graph.inputs, nodes=tuple(made.nodes), outputs=graph.outputs)


def _add_of_matrices(made: _Nodes, node: Node, graph: OpGraph) -> None:
    """Adds the `matmul` node `node` to `made`, with batched operands expanded to the result's leading dimensions.
    Vectors and single matrices are not expanded."""
    args = list(node.args)
    for index, operand in enumerate(node.args[:2]):
        spec, leading = graph.spec(str(operand)[1:]), node.spec.shape[:-2]
        if len(spec.shape) < 3 or spec.shape[:-2] == leading:
            continue
        shape = (*leading, *spec.shape[-2:])
        expanded = TensorSpec(dtype=spec.dtype, shape=shape)
        args[index] = made.view(f"{node.name}_expand{index}", "expand", operand, size_operands(shape), expanded)
    made.nodes.append(Node(name=node.name, op=node.op, args=tuple(args), spec=node.spec))


def _add_of_labels(made: _Nodes, node: Node, graph: OpGraph) -> None:
    """Adds the `einsum` node `node` to `made`, with its labels in the order of a batched product. Adds a node that is
    no product of two tensors unchanged."""
    labels, operands = _labels(node), node.args[1] if len(node.args) > 1 else None
    if labels is None or not isinstance(operands, list):
        made.nodes.append(node)
        return
    *sides, out = labels
    groups = _groups(*labels)
    orders = [groups.order(index, side) for index, side in enumerate(sides)]
    if any(sorted(order) != sorted(side) for order, side in zip(orders, sides, strict=True)):
        made.nodes.append(node)
        return
    turned = [
        made.permuted(f"{node.name}_permute{index}", operand, graph.spec(str(operand)[1:]), side, order)
        for index, (operand, side, order) in enumerate(zip(operands, sides, orders, strict=True))
    ]
    # The operand whose own labels come first in the result is the left one.
    left, right = sorted((0, 1), key=lambda index: out.find(groups.own[index][:1]))
    batched = groups.batch + groups.own[left] + groups.own[right]
    written = out if _is_laid_out(node.spec, [out.index(label) for label in batched]) else batched
    args: tuple[Operand, ...] = (f"{orders[left]},{orders[right]}->{written}", [turned[left], turned[right]])
    if written == out:
        made.nodes.append(Node(name=node.name, op=node.op, args=args, spec=node.spec))
        return
    inner = inner_name(node.name)
    spec = TensorSpec(dtype=node.spec.dtype, shape=tuple(node.spec.shape[out.index(label)] for label in batched))
    made.nodes.append(Node(name=inner, op=node.op, args=args, spec=spec))
    view = made.permuted(f"{node.name}_permute2", f"%{inner}", spec, batched, out)
    made.nodes.append(Node(name=node.name, op=COPY, args=(view,), spec=node.spec))


def _labels(node: Node) -> tuple[str, str, str] | None:
    """Returns the labels of both operands and of the result; None if the equation has more, such as an ellipsis."""
    sides, arrow, out = str(node.args[0]).replace(" ", "").partition("->")
    left, comma, right = sides.partition(",")
    operands = node.args[1] if len(node.args) > 1 else None
    both = isinstance(operands, list) and len(operands) == 2
    return (left, right, out) if arrow and comma and both and set(out) <= {*left, *right} else None


def _is_laid_out(spec: TensorSpec, order: list[int]) -> bool:
    """Whether the tensor is dense with its dimensions in the order `order` in memory. PyTorch's own `einsum` gives such
    a tensor if it permutes its result."""
    sizes = tuple(map(parse_size, spec.shape))
    strides = contiguous(sizes) if spec.strides is None else tuple(map(parse_size, spec.strides))
    return View("", spec.dtype, sizes, strides).is_laid_out(order)


def _groups(left: str, right: str, out: str) -> _Groups:
    both = set(left) & set(right)
    batch = "".join(label for label in out if label in both)
    rows, columns = ("".join(label for label in out if label in side and label not in both) for side in (left, right))
    inner = "".join(label for label in left if label in both and label not in out)
    return _Groups(batch, (rows, columns), inner)


def inner_name(name: str) -> str:
    """Returns the name of the product that an `einsum` node `name` becomes if its result is permuted afterwards."""
    return f"{name}_product"
