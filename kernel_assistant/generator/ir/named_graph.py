"""Makes a graph in which sizes and numbers have both a name (D0, C0) and a value, from a canonical graph, which has
only the names."""

from __future__ import annotations

from kernel_assistant.generator.ir.named import NamedNumber, NamedSize
from kernel_assistant.records import OpGraph
from kernel_assistant.records.canonical import Canonical, Item, factors, mapped


def named_graph(task: Canonical) -> OpGraph:
    """Returns the graph of `task` with a name and a value for each size and number: the generator prints the name and
    decides by the value. In a graph with float64 values numbers have no names, because a name has one type in C."""
    sizes = {name: NamedSize.of_name(name, value) for name, value in task.sizes.items()}
    specs = [value.spec for value in task.graph.inputs] + [node.spec for node in task.graph.nodes]
    doubles = any(spec.dtype == "f64" for spec in specs)

    def size(text: str) -> str:
        return "*".join(repr(sizes[one]) if one in sizes else one for one in factors(text))

    def item(value: Item, shaped: bool) -> Item:
        if not isinstance(value, str):
            return value
        if value in task.constants:
            return task.constants[value] if doubles else NamedNumber(task.constants[value], value)
        return sizes[value] if value in sizes else size(value)

    return mapped(task.graph, size, item)
