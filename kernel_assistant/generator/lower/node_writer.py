"""Makes the nodes that replace one node of a graph."""

from __future__ import annotations

from itertools import count

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.operators import COPY
from kernel_assistant.generator.ir.sizes import size_operands
from kernel_assistant.generator.lower.numbers import HALVES
from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.graph import Operand


class NodeWriter:
    """Makes the nodes that replace one node. Values between them are float32 if the result has a half type."""

    def __init__(self, graph: OpGraph, node: Node) -> None:
        self.graph, self.node = graph, node
        self.nodes: list[Node] = []
        taken = {value.name for value in graph.inputs} | {one.name for one in graph.nodes}
        self._names = (name for number in count() if (name := f"{node.name}_{number}") not in taken)
        self.dtype = "f32" if node.spec.dtype in HALVES else node.spec.dtype

    def argument(self, position: int, name: str, default: Operand = None) -> Operand:
        return self.node.args[position] if position < len(self.node.args) else self.node.kwargs.get(name, default)

    def spec(self, operand: Operand) -> TensorSpec:
        """Spec of an argument of the node."""
        if not isinstance(operand, str) or not operand.startswith("%"):
            raise Unsupported(f"{self.node.op} wants a tensor, got {operand!r}")
        return self.graph.spec(operand[1:])

    def name(self) -> str:
        """A name that no other value has, not even one made by an earlier expansion."""
        return next(self._names)

    def add(self, op: str, *args: Operand, shape: tuple[str, ...], **kwargs: Operand) -> str:
        """Add a node whose result has the dtype of intermediate values; returns its operand."""
        return self.typed(self.dtype, op, *args, shape=shape, **kwargs)

    def typed(self, dtype: str, op: str, *args: Operand, shape: tuple[str, ...], **kwargs: Operand) -> str:
        """Add a node whose result has this dtype; returns its operand."""
        name = self.name()
        self.nodes.append(Node(name=name, op=op, args=args, kwargs=kwargs, spec=TensorSpec(dtype=dtype, shape=shape)))
        return f"%{name}"

    def copy(self, value: Operand) -> str:
        """Add a contiguous copy of an argument of the node; returns its operand."""
        spec = self.spec(value)
        return self.typed(spec.dtype, COPY, value, shape=spec.shape)

    def view(self, value: Operand, shape: tuple[str, ...], dtype: str) -> str:
        """Add a view of `value` in another shape; returns its operand."""
        return self.typed(dtype, "view", value, size_operands(shape), shape=shape)

    def end(self, op: str, *args: Operand) -> list[Node]:
        """Adds the last node, with the name and result of the replaced node; returns all nodes."""
        return [*self.nodes, Node(name=self.node.name, op=op, args=args, spec=self.node.spec)]

    def ended(self, last: str) -> list[Node]:
        """All nodes, with the last one, `last`, renamed to the replaced node. Raises ValueError if the last node has
        another name or another shape.
        """
        *before, node = self.nodes
        if last != f"%{node.name}" or node.spec.shape != self.node.spec.shape:
            raise ValueError(f"{last} is not what {self.node.name} is replaced by")
        return [*before, Node(name=self.node.name, op=node.op, args=node.args, kwargs=node.kwargs, spec=self.node.spec)]

    def reduced(self, rows: str, reduction: Operand) -> list[Node]:
        """Reduces the loss of each row as `reduction` says: not at all (0), to the mean (1) or to the sum (2)."""
        if reduction == 0:
            return self.end("alias", rows)
        return self.end("mean" if reduction == 1 else "sum", rows)
