"""Defines the node that runs the steps of a recurrent layer, and finds it in a part of a graph (one kernel's share).
CUDA only; see docs/recurrent.md."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.operators import operator
from kernel_assistant.generator.ir.sizes import fixed
from kernel_assistant.generator.loops.strided import VIEWS, Resolver
from kernel_assistant.records import Node, OpGraph
from kernel_assistant.records.graph import name_of, references

#: PyTorch's operators, with the number of their gates.
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
#: One layer in all its directions: (gates, weights, biases, h0, c0, kind, layer, batch_first). `weights` and `biases`
#: have an operand for each direction; h0 and c0 are those of all layers, `layer` is this one's number. Results: all
#: steps, the last h, the last c.
RECURRENCE = "ka_recurrence"


def recurrent_layers(graph: OpGraph) -> frozenset[str]:
    """Returns the names of the nodes that are PyTorch's recurrent layers (LSTM, GRU, RNN)."""
    return frozenset(node.name for node in graph.nodes if operator(node) in GATES)


@dataclass(frozen=True, slots=True)
class Recurrence:
    """The `ka_recurrence` node of a part (one kernel's share of a graph). `results` maps the numbers of the node's
    results that are read to their names: 0 for the hidden states of all steps, 1 for the last hidden state h, 2 for the
    last cell state c."""

    node: Node
    results: dict[int, str]
    kind: str
    hidden: int
    layer: int
    batch_first: bool

    @property
    def gates(self) -> int:
        return GATES[self.kind]

    @property
    def directions(self) -> int:
        weights = self.node.args[1]
        assert isinstance(weights, list)
        return len(weights)


def as_recurrence(graph: OpGraph) -> Recurrence | None:
    """Returns the recurrence that `graph`, one kernel's share of a graph, computes. Returns None if it computes
    anything else, or if an operand is not contiguous from the first element of its buffer."""
    heads = [node for node in graph.nodes if node.op == RECURRENCE]
    if len(heads) != 1:
        return None
    head, values = heads[0], Resolver(graph)
    results = [node for node in graph.nodes if node.op == "getitem" and references(node) == [head.name]]
    others = [node for node in graph.nodes if node is not head and node not in results]
    if any(operator(node) not in VIEWS for node in others) or set(graph.outputs) != {node.name for node in results}:
        return None
    try:
        read = [values.view(f"%{name}") for name in references(head)]
    except Unsupported:
        return None
    if not all(view.is_contiguous and view.root in values.given for view in read):
        return None
    weights, kind, layer, batch_first = head.args[1], *head.args[5:8]
    assert isinstance(weights, list)
    hidden = fixed(graph.spec(name_of(weights[0])).shape[1])
    assert hidden is not None
    numbered = {int(str(node.args[1])): node.name for node in results}
    return Recurrence(head, numbered, str(kind), hidden, int(str(layer)), bool(batch_first))
