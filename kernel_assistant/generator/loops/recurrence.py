"""The node that runs the steps of a recurrent layer, and how a part with it is read. CUDA; docs/recurrent.md."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.generator.ir.sizes import fixed
from kernel_assistant.records import Node, OpGraph
from kernel_assistant.records.graph import references

#: PyTorch's operators, with the number of their gates.
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
#: One layer in all its directions: (gates, weights, biases, h0, c0, kind, first, batch_first). `weights` and `biases`
#: have an operand for each direction; `first` is the layer's first place in h0 and c0. Results: all steps, the last h,
#: the last c.
RECURRENCE = "ka_recurrence"


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A `ka_recurrence` with its results, as a part has it."""

    node: Node
    results: dict[int, str]
    kind: str
    hidden: int
    first: int
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
    """The recurrence that a part computes, None if it is no such part."""
    heads = [node for node in graph.nodes if node.op == RECURRENCE]
    if len(heads) != 1:
        return None
    head = heads[0]
    results = {
        str(node.args[1]): node.name for node in graph.nodes if node.op == "getitem" and references(node) == [head.name]
    }
    if set(graph.outputs) != set(results.values()):
        return None
    weights, kind, first, batch_first = head.args[1], head.args[5], head.args[6], head.args[7]
    assert isinstance(weights, list)
    hidden = fixed(graph.spec(str(weights[0])[1:]).shape[1])
    assert hidden is not None
    numbered = {int(number): name for number, name in results.items()}
    return Recurrence(head, numbered, str(kind), hidden, int(str(first)), bool(batch_first))
