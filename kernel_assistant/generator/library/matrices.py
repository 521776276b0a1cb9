"""Products whose matrices do not lie at even distances, as a library needs them: `matmul` in which both operands are
broadcast, `einsum` with labels in any order. Views bring their operands into the order of a batched product, and the
views are then copied (`copies.py`)."""

from __future__ import annotations

from kernel_assistant.generator.ir.operators import COPY, operator
from kernel_assistant.generator.ir.sizes import size_operands
from kernel_assistant.generator.library.products import MATMULS
from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.graph import Operand

#: Products whose matrices may lie at any distances.
SPREAD = (*MATMULS, "einsum")


def with_matrices(graph: OpGraph, calls: set[str]) -> OpGraph:
    """The graph with the operands of the products `calls` viewed as one matrix for each matrix of the result.

    A library repeats an operand's matrices along all leading dimensions or along none, and needs an even distance
    between them.
    """
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.name in calls:
            nodes += _of_labels(node, graph) if operator(node) == "einsum" else _of_matrices(node, graph)
        else:
            nodes.append(node)
    return OpGraph(dims=graph.dims, inputs=graph.inputs, nodes=tuple(nodes), outputs=graph.outputs)


def _of_matrices(node: Node, graph: OpGraph) -> list[Node]:
    """A `matmul` whose batched operands are expanded to the result's leading dimensions. Vectors and single matrices
    stay as they are."""
    nodes: list[Node] = []
    args = list(node.args)
    for index, operand in enumerate(node.args[:2]):
        spec, leading = graph.spec(str(operand)[1:]), node.spec.shape[:-2]
        if len(spec.shape) < 3 or spec.shape[:-2] == leading:
            continue
        shape = (*leading, *spec.shape[-2:])
        expanded = TensorSpec(dtype=spec.dtype, shape=shape)
        args[index] = _before(node, index, "expand", operand, size_operands(shape), expanded, nodes)
    return [*nodes, Node(name=node.name, op=node.op, args=tuple(args), spec=node.spec)]


def _of_labels(node: Node, graph: OpGraph) -> list[Node]:
    """An `einsum` of two tensors with its labels in the order of a batched product; unchanged if it is no such
    product."""
    labels = _labels(node)
    if labels is None:
        return [node]
    *sides, out = labels
    *orders, found = _ordered(*labels)
    if any(sorted(order) != sorted(side) for order, side in zip(orders, sides, strict=True)):
        return [node]
    nodes: list[Node] = []
    operands = node.args[1] if isinstance(node.args[1], list) else []
    turned: list[Operand] = []
    for index, (operand, side, order) in enumerate(zip(operands, sides, orders, strict=True)):
        turned.append(_permuted(node, index, operand, graph.spec(str(operand)[1:]), side, order, nodes))
    args: tuple[Operand, ...] = (f"{','.join(orders)}->{found}", turned)  # type: ignore[assignment]
    if found == out:
        return [*nodes, Node(name=node.name, op=node.op, args=args, spec=node.spec)]
    spec = TensorSpec(dtype=node.spec.dtype, shape=tuple(node.spec.shape[out.index(label)] for label in found))
    nodes.append(Node(name=inner_name(node.name), op=node.op, args=args, spec=spec))
    view = _permuted(node, 2, f"%{inner_name(node.name)}", spec, found, out, nodes)
    return [*nodes, Node(name=node.name, op=COPY, args=(view,), spec=node.spec)]


def _labels(node: Node) -> tuple[str, str, str] | None:
    """The labels of both operands and of the result; None if the equation has other parts, such as an ellipsis."""
    sides, arrow, out = str(node.args[0]).replace(" ", "").partition("->")
    left, comma, right = sides.partition(",")
    operands = node.args[1] if len(node.args) > 1 else None
    both = isinstance(operands, list) and len(operands) == 2
    return (left, right, out) if arrow and comma and both and set(out) <= {*left, *right} else None


def _ordered(left: str, right: str, out: str) -> tuple[str, str, str]:
    """The labels of a batched product: batch, rows, inner · batch, columns, inner → batch, rows, columns."""
    both = set(left) & set(right)
    batch = "".join(label for label in out if label in both)
    rows, columns = ("".join(label for label in out if label in side and label not in both) for side in (left, right))
    inner = "".join(label for label in left if label in both and label not in out)
    return batch + rows + inner, batch + columns + inner, batch + rows + columns


def _permuted(
    node: Node, index: int, operand: Operand, spec: TensorSpec, labels: str, order: str, nodes: list[Node]
) -> str:
    """Add a view of the operand whose dimensions, labelled `labels`, are in another order."""
    permutation: Operand = [labels.index(label) for label in order]
    shape = tuple(spec.shape[labels.index(label)] for label in order)
    return _before(node, index, "permute", operand, permutation, TensorSpec(dtype=spec.dtype, shape=shape), nodes)


def inner_name(name: str) -> str:
    """The name of a product whose result is permuted afterwards."""
    return f"{name}_product"


def _before(
    node: Node, index: int, op: str, operand: Operand, argument: Operand, spec: TensorSpec, nodes: list[Node]
) -> str:
    """Add a view of the operand at `index` of a node; returns its name as an operand."""
    name = f"{node.name}_{op}{index}"
    nodes.append(Node(name=name, op=op, args=(operand, argument), spec=spec))
    return f"%{name}"
