"""A line of a model's plan that leaves one operator to PyTorch (docs/residual.md). Pure.

    // call: n0(x0, p0, n0=conv)

The line names a node of the graph, then pairs VALUE=BUFFER: a value, and the buffer that contains it. A bare name means
that both have this name. There is a pair for each value that the node reads and for each result. Views between these
values and the operator belong to the call.
"""

from __future__ import annotations

import msgspec

from kernel_assistant.records import Launch, Node, OpGraph
from kernel_assistant.records.graph import references
from kernel_assistant.records.residual import ResidualCall, is_passive


def residual_launch(name: str, pairs: list[tuple[str, str]], graph: OpGraph) -> Launch:
    """Returns the launch that calls PyTorch's operator of node `name`; `pairs` are values and their buffers. Raises
    ValueError if the line does not fit the graph."""
    known = {node.name: node for node in graph.nodes}
    if name not in known:
        raise ValueError(f"{name!r} is no node of the graph; want // call: NODE(VALUE=BUFFER, …)")
    if is_passive(known[name]):
        raise ValueError(f"{name} ({known[name].op}) arranges values: kernels read them as they are")
    values = {value.name: value.spec for value in graph.inputs} | {node.name: node.spec for node in graph.nodes}
    odd = [value for value, _ in pairs if value not in values]
    if odd:
        raise ValueError(f"{odd[0]!r} is no value of the graph")
    reads = {value for value, _ in pairs} - {name}
    results = [known[value] for value, _ in pairs if value in known and _is_result(known[value], name)]
    reads -= {node.name for node in results}
    wanted = {name, *(node.name for node in results)} | _between(known[name], reads, known)
    given = {value.name for value in graph.inputs}
    specs = {}
    for value, buffer in pairs:
        # Scratch is contiguous, however PyTorch lays the value out.
        lies = value in given or buffer.startswith("out")
        specs[value] = values[value] if lies else msgspec.structs.replace(values[value], strides=None)
    call = ResidualCall(nodes=tuple(node for node in graph.nodes if node.name in wanted), specs=specs)
    return Launch(symbol=f"{name}_{known[name].op.partition('.')[0]}", args=tuple(pairs), call=call)


def _is_result(node: Node, name: str) -> bool:
    return node.op == "getitem" and node.args[:1] == (f"%{name}",)


def _between(node: Node, reads: set[str], known: dict[str, Node]) -> set[str]:
    """Returns the names of the views (such as transposes) between the values `reads` and the operands of `node`. Raises
    ValueError if `node` needs a value that is not in `reads`. `known` maps names to the nodes of the graph."""
    views: set[str] = set()
    for name in references(node):
        if name in reads:
            continue
        if name not in known:
            raise ValueError(f"{node.name} reads {name}: name it among the values")
        if not is_passive(known[name]):
            raise ValueError(f"{node.name} reads {name}, which is computed: name it, with the buffer that holds it")
        views |= {name} | _between(known[name], reads, known)
    return views
