"""Finds the nodes that PyTorch has to compute, and writes the launches that call it. See docs/residual.md."""

from __future__ import annotations

from collections.abc import Callable

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.operators import operator
from kernel_assistant.records import Launch, Node, OpGraph
from kernel_assistant.records.graph import GraphInput, Operand, references
from kernel_assistant.records.residual import ResidualCall

#: Operators that no call gets: an applied call is given tensors that begin anywhere in their storage.
NEVER = frozenset(("as_strided", "as_strided_copy", "as_strided_scatter"))


def nodes_that_stay(graph: OpGraph, writable: Callable[[OpGraph], bool]) -> frozenset[str]:
    """Returns the names of the nodes that stay PyTorch's calls, because `writable` (whether the generator can write a
    graph) is false even for a graph of this node alone, with all operands as inputs."""
    results: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if node.op == "getitem":
            results.setdefault(references(node)[0], []).append(node)
    return frozenset(
        node.name
        for node in graph.nodes
        if node.op != "getitem"
        and operator(node) not in NEVER
        and not writable(_alone(graph, [node, *results.get(node.name, ())]))
    )


def _alone(graph: OpGraph, nodes: list[Node]) -> OpGraph:
    """Returns the first node with the `getitem`s of its results, as a graph; the values that it reads are the inputs
    x0, x1, …"""
    names: dict[str, str] = {}
    for name in references(nodes[0]):
        names.setdefault(name, f"x{len(names)}")
    inputs = tuple(GraphInput(name=inside, spec=graph.spec(name)) for name, inside in names.items())
    # Equal nodes of a graph with many equal layers are then equal graphs.
    own = {node.name: f"n{number}" for number, node in enumerate(nodes)}
    alone = tuple(renamed(node, names | own) for node in nodes)
    outputs = tuple(own[node.name] for node in (nodes[1:] or nodes))
    return OpGraph(dims=graph.dims, inputs=inputs, nodes=alone, outputs=outputs)


def renamed(node: Node, names: dict[str, str]) -> Node:
    """Returns a copy of the node in which its own name and the names of the values that it reads are replaced. `names`
    maps old names to new ones; names that it does not have stay."""

    def operand(item: Operand) -> Operand:
        if isinstance(item, list):
            return [operand(one) for one in item]  # type: ignore[misc]
        if isinstance(item, str) and item.startswith("%"):
            return f"%{names.get(item[1:], item[1:])}"
        return item

    kwargs = {key: operand(item) for key, item in node.kwargs.items()}
    args = tuple(operand(item) for item in node.args)
    return Node(name=names.get(node.name, node.name), op=node.op, args=args, kwargs=kwargs, spec=node.spec)


def as_call(original: OpGraph, part: OpGraph, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> ResidualCall:
    """Returns the call with which PyTorch computes a part, with its nodes as in the task's graph. Raises Unsupported if
    the part has nodes that are not in that graph.

    `inputs` and `outputs` are the names of the part's inputs and outputs in the task's graph.
    """
    known = {node.name: node for node in original.nodes}
    if not all(node.name in known and known[node.name].op == node.op for node in part.nodes):
        raise Unsupported("a call that is not the module's own")
    specs = {name: value.spec for name, value in zip(inputs, part.inputs, strict=True)}
    specs |= {name: part.spec(name) for name in outputs}
    try:
        return ResidualCall(nodes=tuple(known[node.name] for node in part.nodes), specs=specs)
    except ValueError as error:
        raise Unsupported(str(error)) from error


def emit_residual(call: ResidualCall, part: OpGraph, prefix: str) -> Launch:
    """Returns the launch with which PyTorch computes `part`: it reads the part's inputs and writes the buffers `out0`,
    `out1`, …; `prefix` begins its symbol."""
    inside = [value.name for value in part.inputs] + [f"out{number}" for number in range(len(part.outputs))]
    symbol = f"{prefix}{call.call.op.partition('.')[0].replace('::', '_')}"
    return Launch(symbol=symbol, args=tuple(zip(call.specs, inside, strict=True)), call=call)
