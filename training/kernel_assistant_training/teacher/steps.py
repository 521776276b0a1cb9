"""Reductions of whole tensors in two steps, first rows, then their results, so that many threads have work."""

from __future__ import annotations

from kernel_assistant.generator.ir.sizes import parse_size, product, size_value
from kernel_assistant.generator.lower.expand import expand, in_steps
from kernel_assistant.generator.lower.numbers import HALVES
from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.canonical import Canonical
from kernel_assistant.records.graph import Operand
from kernel_assistant_training.teacher.text.lowering import with_constants

#: Most elements of the second step, which one block or thread computes.
MOST_ROWS = 16384
ROW_STEPS = ("sum.dim_IntList", "amax", "amin")
#: Order of a norm → what its elements become, and its sum at the end ("" for nothing).
NORMS = {2: ("mul.Tensor", "sqrt"), 1: ("abs", "")}


def in_two_steps(task: Canonical) -> OpGraph:
    """The task's graph with constants as numbers, composite operators as several nodes, and sums, means, extremes and
    norms over everything in two steps. Raises Unsupported or ValueError."""
    graph = expand(_without_norms(with_constants(task.graph, task.constants)))
    known = {node.name for node in graph.nodes}
    values = {**task.graph.dims, **task.sizes}
    stepped = in_steps(graph, -1)
    nodes: list[Node] = []
    for node in stepped.nodes:
        first = node.name not in known and node.op in ROW_STEPS and node.args[1] == [-1]
        nodes.append(_wider(node, values) if first else node)
    return OpGraph(dims=graph.dims, inputs=graph.inputs, nodes=tuple(nodes), outputs=graph.outputs)


def _wider(node: Node, values: dict[str, int]) -> Node:
    """The first step over as many of the last dimensions as possible, as long as the second step has enough rows."""
    shape = node.spec.shape
    while len(shape) > 1 and size_value(product([parse_size(size) for size in shape]), values) > MOST_ROWS:
        shape = shape[:-1]
    dims: Operand = [-1 - place for place in range(len(node.spec.shape) - len(shape) + 1)]
    spec = TensorSpec(dtype=node.spec.dtype, shape=shape)
    return Node(name=node.name, op=node.op, args=(node.args[0], dims, *node.args[2:]), spec=spec)


def _without_norms(graph: OpGraph) -> OpGraph:
    if not any(_is_whole_norm(node) for node in graph.nodes):
        return graph
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += _norm(graph, node) if _is_whole_norm(node) else [node]
    return OpGraph(dims=graph.dims, inputs=graph.inputs, nodes=tuple(nodes), outputs=graph.outputs)


def _is_whole_norm(node: Node) -> bool:
    order = node.args[1] if len(node.args) > 1 else 2
    return node.op == "linalg_vector_norm" and not node.spec.shape and order in NORMS and not node.kwargs


def _norm(graph: OpGraph, node: Node) -> list[Node]:
    """A norm as squares or absolute values, their sum, and its root."""
    values = node.args[0]
    assert isinstance(values, str)
    before = graph.spec(values[1:])
    single = "f32" if before.dtype in HALVES else before.dtype
    order = node.args[1] if len(node.args) > 1 else 2
    assert isinstance(order, int | float)
    each, end = NORMS[int(order)]
    args = (values, values) if each == "mul.Tensor" else (values,)
    first = Node(name=f"{node.name}_a", op=each, args=args, spec=TensorSpec(dtype=single, shape=before.shape))
    total = Node(name=f"{node.name}_b", op="sum", args=(f"%{first.name}",), spec=TensorSpec(dtype=single, shape=()))
    if not end:
        return [first, Node(name=node.name, op="sum", args=(f"%{first.name}",), spec=node.spec)]
    return [first, total, Node(name=node.name, op=end, args=(f"%{total.name}",), spec=node.spec)]
