"""Replaces recurrent layers (LSTM, GRU, RNN) by products for all steps together and kernels that run the steps. CUDA
only; see docs/recurrent.md.

A layer is one product, gates = x · W_ihᵀ + b_ih for all steps and both directions, and one `ka_recurrence`, which adds
h · W_hhᵀ + b_hh step by step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.operators import operator
from kernel_assistant.generator.ir.sizes import Size, fixed, mul, shape_text
from kernel_assistant.generator.loops.recurrence import GATES, RECURRENCE, recurrent_layers
from kernel_assistant.generator.loops.strided import Resolver
from kernel_assistant.generator.lower.node_writer import NodeWriter
from kernel_assistant.generator.print.cuda.templates.recurrence import can_be_launched
from kernel_assistant.records import Node, OpGraph
from kernel_assistant.records.graph import Operand, references

#: Of x, parameters and states; the kernel computes in float32.
DTYPES = ("f32", "bf16", "f16")
_ZEROS = ("zeros", "zeros_like", "new_zeros")


def with_recurrences(graph: OpGraph, stay: frozenset[str] = frozenset()) -> OpGraph:
    """Returns the graph with each recurrent layer, except for nodes in `stay`, replaced by products and recurrences;
    the graph itself if no layer can be replaced."""
    layers = recurrent_layers(graph) - stay
    if not layers:
        return graph
    known = {node.name: node for node in graph.nodes}
    results: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if node.op == "getitem" and references(node)[0] in layers:
            results.setdefault(references(node)[0], []).append(node)
    replaced: dict[str, list[Node]] = {}
    for name, read in results.items():
        try:
            replaced[name] = _Layers(graph, known[name], read).nodes()
        except Unsupported:
            continue
    gone = {one.name for name in replaced for one in results[name]}
    nodes = [new for node in graph.nodes if node.name not in gone for new in replaced.get(node.name, [node])]
    return OpGraph(dims=graph.dims, inputs=graph.inputs, nodes=tuple(nodes), outputs=graph.outputs)


@dataclass(frozen=True, slots=True)
class _Direction:
    """The parameters of one direction of a layer."""

    w_ih: Operand
    w_hh: Operand
    b_ih: Operand
    b_hh: Operand


class _Layers:
    """The layers of one recurrent node. `read` are the `getitem` nodes of its results. The constructor raises
    Unsupported for what the kernel does not compute: dropout in training mode, projections, other dtypes, a hidden size
    that is not fixed."""

    def __init__(self, graph: OpGraph, node: Node, read: Sequence[Node]) -> None:
        self.node = node
        self.kind = operator(node)
        self.values, self.writer = Resolver(graph), NodeWriter(graph, node)
        self.read = {int(str(one.args[1])): one for one in read}
        if node.op != f"{self.kind}.input" or len(self.read) < len(read):
            raise Unsupported(f"operator {node.op}")
        x, states, parameters, biases, layers, dropout, training, both, batch_first = node.args[:9]
        self.x, self.layers, self.batch_first = x, int(str(layers)), bool(batch_first)
        self.directions = 2 if both else 1
        self.states: list[Operand] = states if isinstance(states, list) else [states]  # type: ignore[assignment]
        if dropout and training:
            raise Unsupported(f"{self.kind} with dropout while training")
        self.parameters = list(self._parameters(parameters, bool(biases)))
        self.dtype = self.writer.spec(self.x).dtype
        hidden = fixed(self.writer.spec(self.parameters[0].w_hh).shape[1])
        read_dtypes = {self.writer.spec(name).dtype for name in (f"%{one}" for one in references(node))}
        if hidden is None or read_dtypes - {self.dtype} or self.dtype not in DTYPES:
            raise Unsupported(f"{self.kind} of {', '.join(sorted(read_dtypes))}")
        self.hidden: Size = hidden
        if not can_be_launched(hidden, GATES[self.kind]):
            raise Unsupported(f"{self.kind} of {hidden} hidden units")

    def _parameters(self, given: Operand, biases: bool) -> Iterator[_Direction]:
        each = 4 if biases else 2
        if not isinstance(given, list) or len(given) != each * self.layers * self.directions:
            raise Unsupported(f"{self.kind} with projections")
        for at in range(0, len(given), each):
            weights, added = given[at : at + 2], given[at + 2 : at + 4]
            yield _Direction(weights[0], weights[1], *(added if biases else (None, None)))

    def nodes(self) -> list[Node]:
        """Returns all nodes that replace the recurrent node and the `getitem` nodes of its results."""
        batch, steps = self.writer.spec(self.x).shape[slice(0, 2) if self.batch_first else slice(1, None, -1)]
        leading = (batch, steps) if self.batch_first else (steps, batch)
        hidden, width = shape_text(self.hidden), shape_text(mul(self.directions, self.hidden))
        states = [self._initial(number) for number in range(len(self.states))]
        x, last = self.x, dict[int, list[str]]()
        for layer in range(self.layers):
            of_layer = self.parameters[layer * self.directions : (layer + 1) * self.directions]
            done = layer == self.layers - 1
            # Layers that begin with zeros are alike.
            recurrence = self._recurrence(x, of_layer, layer if any(states) else 0, states, leading)
            if not done:
                x = self._result(recurrence, 0, (*leading, width))
            elif 0 in self.read:
                self._take(self.read[0], "getitem", recurrence, 0)
            for number in self.read.keys() - {0}:
                if self.layers == 1:
                    self._take(self.read[number], "getitem", recurrence, number)
                    continue
                state = self._result(recurrence, number, (str(self.directions), batch, hidden))
                last.setdefault(number, []).append(state)
        for number, of_layers in last.items():
            self._take(self.read[number], "cat", of_layers, 0)
        return self.writer.nodes

    def _recurrence(
        self, x: Operand, given: Sequence[_Direction], layer: int, states: list[Operand], leading: tuple[str, ...]
    ) -> str:
        """Adds the product and the recurrence of a layer; returns the operand that names the recurrence."""
        rows = shape_text(mul(GATES[self.kind] * self.directions, self.hidden))
        w_ih = self._joined([one.w_ih for one in given], (rows, self._width(given[0].w_ih)))
        b_ih = None if given[0].b_ih is None else self._joined([one.b_ih for one in given], (rows,))
        gates = self._add("linear", x, w_ih, b_ih, shape=(*leading, rows))
        weights = [self._readable(one.w_hh) for one in given]
        biases = None if given[0].b_hh is None else [self._readable(one.b_hh) for one in given]
        h0, c0 = [*states, None][:2]
        operands = (gates, weights, biases, h0, c0, self.kind, layer, self.batch_first)
        width = shape_text(mul(self.directions, self.hidden))
        return self._add(RECURRENCE, *operands, shape=(*leading, width))  # type: ignore[arg-type]

    def _joined(self, operands: list[Operand], shape: tuple[str, ...]) -> Operand:
        return operands[0] if len(operands) == 1 else self._add("cat", operands, 0, shape=shape)  # type: ignore[arg-type]

    def _width(self, operand: Operand) -> str:
        return self.writer.spec(operand).shape[-1]

    def _initial(self, number: int) -> Operand:
        """Returns the initial h (`number` 0) or c (1) of all layers; None if it is zeros."""
        operand = self.states[number]
        node = self.values.nodes.get(str(operand)[1:])
        return None if node is not None and operator(node) in _ZEROS else self._readable(operand)

    def _readable(self, operand: Operand) -> Operand:
        """Returns `operand` itself if it is contiguous in memory, otherwise a copy of it."""
        view = self.values.view_or_none(operand)
        return operand if view is not None and view.is_contiguous else self.writer.copy(operand)

    def _add(self, op: str, *args: Operand, shape: tuple[str, ...]) -> str:
        return self.writer.typed(self.dtype, op, *args, shape=shape)

    def _result(self, recurrence: str, number: int, shape: tuple[str, ...]) -> str:
        return self._add("getitem", recurrence, number, shape=shape)

    def _take(self, node: Node, op: str, *args: Operand | list[str]) -> None:
        """Adds a node with the name and spec of `node`, but with the operator `op`."""
        self.writer.nodes.append(Node(name=node.name, op=op, args=args, spec=node.spec))  # type: ignore[arg-type]
