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
    """Collects the nodes that replace one node of a graph. Their intermediate values are float32 if the result has a
    half type."""

    def __init__(self, graph: OpGraph, node: Node) -> None:
        self.graph, self.node = graph, node
        self.nodes: list[Node] = []
        self._results: dict[int, list[Node]] = {}
        taken = {value.name for value in graph.inputs} | {one.name for one in graph.nodes}
        self._names = (name for number in count() if (name := f"{node.name}_{number}") not in taken)
        self.dtype = "f32" if node.spec.dtype in HALVES else node.spec.dtype

    def argument(self, position: int, name: str, default: Operand = None) -> Operand:
        return self.node.args[position] if position < len(self.node.args) else self.node.kwargs.get(name, default)

    def spec(self, operand: Operand) -> TensorSpec:
        """Returns the spec (dtype, shape and strides) of an operand of the node. Raises Unsupported if the operand is
        no tensor."""
        if not isinstance(operand, str) or not operand.startswith("%"):
            raise Unsupported(f"{self.node.op} wants a tensor, got {operand!r}")
        return self.graph.spec(operand[1:])

    def name(self) -> str:
        """Returns a new name that no value of the graph has, not even one that an earlier expansion made."""
        return next(self._names)

    def add(self, op: str, *args: Operand, shape: tuple[str, ...], **kwargs: Operand) -> str:
        """Adds a node whose result has the dtype of intermediate values. Returns the operand that names it, such as
        `%n5_0`."""
        return self.typed(self.dtype, op, *args, shape=shape, **kwargs)

    def typed(self, dtype: str, op: str, *args: Operand, shape: tuple[str, ...], **kwargs: Operand) -> str:
        """Adds a node whose result has the dtype `dtype`. Returns the operand that names it."""
        name = self.name()
        self.nodes.append(Node(name=name, op=op, args=args, kwargs=kwargs, spec=TensorSpec(dtype=dtype, shape=shape)))
        return f"%{name}"

    def copy(self, value: Operand) -> str:
        """Adds a contiguous copy of an operand of the node. Returns the operand that names the copy."""
        spec = self.spec(value)
        return self.typed(spec.dtype, COPY, value, shape=spec.shape)

    def view(self, value: Operand, shape: tuple[str, ...], dtype: str) -> str:
        """Adds a view of `value` with another shape. Returns the operand that names the view."""
        return self.typed(dtype, "view", value, size_operands(shape), shape=shape)

    def returns(self, single: int | None) -> bool:
        """Finds the nodes that stand for the results of the replaced node; call this before `wants` and `result`. If
        `single` is a number, the replaced node returns one tensor and stands for result number `single` itself, such as
        0 for `median` of all elements. If `single` is None, it returns a tuple, and each `getitem` node that reads the
        tuple stands for one result. Returns whether any node was found. Raises Unsupported if the tuple is an output of
        the graph.
        """
        if single is not None:
            self._results = {single: [self.node]}
            return True
        if self.node.name in self.graph.outputs:
            raise Unsupported("an output that is several tensors")
        for one in self.graph.nodes:
            if one.op == "getitem" and one.args[0] == f"%{self.node.name}" and isinstance(one.args[1], int):
                self._results.setdefault(one.args[1], []).append(one)
        return bool(self._results)

    def wants(self, number: int) -> bool:
        """Whether `returns` has found a node that stands for result number `number`."""
        return number in self._results

    def result(self, number: int, op: str, *args: Operand) -> None:
        """Adds a node with the operator `op` that computes result number `number` of the replaced node, for which
        `wants` must be true. The new node gets the name and spec of the first node that stands for this result; the
        other nodes that stand for it are replaced by aliases of the new one.
        """
        first, *others = self._results[number]
        self.nodes.append(Node(name=first.name, op=op, args=args, spec=first.spec))
        self.nodes += [Node(name=one.name, op="alias", args=(f"%{first.name}",), spec=one.spec) for one in others]

    def end(self, op: str, *args: Operand) -> list[Node]:
        """Returns all nodes, followed by a last node `op`, which has the name and spec of the replaced node."""
        return [*self.nodes, Node(name=self.node.name, op=op, args=args, spec=self.node.spec)]

    def ended(self, last: str) -> list[Node]:
        """Returns all nodes; the last one gets the name and spec of the replaced node. Raises ValueError if the last
        node is not `last`, or has another shape.
        """
        *before, node = self.nodes
        if last != f"%{node.name}" or node.spec.shape != self.node.spec.shape:
            raise ValueError(f"{last} is not what {self.node.name} is replaced by")
        return [*before, Node(name=self.node.name, op=node.op, args=node.args, kwargs=node.kwargs, spec=self.node.spec)]

    def reduced(self, rows: str, reduction: Operand) -> list[Node]:
        """Returns all nodes, with the loss `rows` of each row reduced: not at all (`reduction` 0), to the mean (1) or
        sum (2)."""
        if reduction == 0:
            return self.end("alias", rows)
        return self.end("mean" if reduction == 1 else "sum", rows)
