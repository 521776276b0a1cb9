"""Looks up facts about a graph that the rewriting rules of this folder need: which nodes compute and read a value, and
which values do not depend on inputs."""

from __future__ import annotations

from functools import cached_property

from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.graph import Operand, name_of, readers_of, references, spec_of

#: Types that are rounded as real numbers are.
REAL = frozenset(("f32", "f64", "bf16", "f16"))


class GraphFacts:
    """Looks up which nodes compute and read the values of a graph. A value is `constant` if it depends on parameters
    and buffers alone, not on inputs of the module."""

    def __init__(self, graph: OpGraph, target: str) -> None:
        self.graph, self.target = graph, target
        self.nodes = {node.name: node for node in graph.nodes}
        self._readers = readers_of(graph)

    @cached_property
    def constant(self) -> frozenset[str]:
        """The names of all constant values, parameters and buffers included."""
        names = {value.name for value in self.graph.inputs if value.kind != "input"}
        for node in self.graph.nodes:
            read = references(node)
            if read and all(name in names for name in read):
                names.add(node.name)
        return frozenset(names)

    def is_constant(self, operand: Operand) -> bool:
        """Whether an operand is a value that depends on parameters and buffers alone."""
        return name_of(operand) in self.constant

    def spec(self, operand: Operand) -> TensorSpec | None:
        """Returns the shape and dtype of the value that `operand` names; None if `operand` names no value."""
        return spec_of(self.graph, operand)

    def only_for(self, operand: Operand, reader: Node) -> Node | None:
        """Returns the node that computes `operand` if `reader` is its only reader, so that a rule may replace both
        together. Returns None if no node computes it, if it is an output of the graph or is read elsewhere, or if its
        dtype is not floating-point.
        """
        node = self.nodes.get(name_of(operand))
        if node is None or node.name in self.graph.outputs:
            return None
        alone = self._readers.get(node.name) == [reader] and references(reader).count(node.name) == 1
        return node if alone and node.spec.dtype in REAL else None


def is_number(operand: Operand) -> bool:
    """Whether an operand is an int or a float, and neither a bool nor a word such as "inf"."""
    return isinstance(operand, int | float) and not isinstance(operand, bool)


def dims_of(operand: Operand, rank: int) -> tuple[int, ...]:
    """Returns the dimensions over which a reduction runs, sorted, as indices from 0. An operand that is None or []
    means all `rank` dimensions.
    """
    if operand is None or operand == []:
        return tuple(range(rank))
    listed = operand if isinstance(operand, list | tuple) else [operand]
    return tuple(sorted(int(one) % rank for one in listed if isinstance(one, int)))
