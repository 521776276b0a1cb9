"""Names features of a graph's structure, such as the number of inputs, branches, broadcast operands and results, for
statistics."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_assistant.records import OpGraph
from kernel_assistant.records.graph import references
from kernel_assistant_training.synth.digests import specs_of

#: Operators that reduce the size of a value.
_REDUCING = ("mean", "sum", "amax", "amin", "argmax", "argmin", "logsumexp", "prod", "max", "min", "var", "std")
_INDEXING = ("gather", "index_select", "embedding")


def features(graph: OpGraph) -> frozenset[str]:
    """Returns the names of the features that the graph has, such as "2 inputs" or "a computed value read twice"."""
    return frozenset((*_of_inputs(graph), *_of_shapes(graph), *_of_flow(graph), *_of_results(graph)))


def _of_inputs(graph: OpGraph) -> Iterator[str]:
    given = [value for value in graph.inputs if value.kind == "input"]
    yield f"{min(len(given), 4)} inputs"
    if len(graph.inputs) - len(given) >= 3:
        yield "three or more parameters"
    shapes = {value.spec.shape for value in given if len(value.spec.shape) > 1}
    if any(
        one[0] == other[0] and len(one) == len(other) and _sizes_differ(one, other)
        for one in shapes
        for other in shapes
    ):
        yield "inputs of other inner sizes"


def _sizes_differ(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    return any("1" not in (a, b) and a != b for a, b in zip(one[1:], other[1:], strict=True))


def _of_shapes(graph: OpGraph) -> Iterator[str]:
    """Yields the names of features about broadcasting in dimensions other than 0: a size 1 meets another size."""
    specs = specs_of(graph)
    read = {name for node in graph.nodes for name in references(node)}
    for value in graph.inputs:
        shape = value.spec.shape
        if value.name in read and "1" in shape[1:] and any(size != "1" for size in shape):
            yield f"{'an input' if value.kind == 'input' else 'a parameter'} with 1 in inner dimensions"
    for node in graph.nodes:
        inner = [specs[name].shape[1:] for name in references(node)]
        if any("1" in one and one != node.spec.shape[1:] for one in inner):
            yield "a value broadcast in inner dimensions"
            return


def _of_flow(graph: OpGraph) -> Iterator[str]:
    """Yields the names of features about the flow of values. Examples: operators are applied to an input before it is
    combined with another input; a computed value is read twice."""
    given = {value.name for value in graph.inputs if value.kind == "input"}
    origins: dict[str, frozenset[str]] = {name: frozenset((name,)) for name in given}
    own, readers = set[str](), dict[str, int]()
    meetings = 0
    for node in graph.nodes:
        read = [name for name in references(node) if name in origins]
        origins[node.name] = frozenset[str]().union(*(origins[name] for name in read))
        for name in set(references(node)):
            readers[name] = readers.get(name, 0) + 1
        if len(origins[node.name]) == 1:
            own |= origins[node.name]
        meetings += len(read) > 1 and len({origins[name] for name in read}) > 1
    if len(given) > 1:
        yield f"{min(len(own), 3)} inputs with steps of their own"
    if meetings > 1:
        yield "inputs meet at two places or more"
    if any(count > 1 for name, count in readers.items() if name.startswith("n")):
        yield "a computed value read twice"
    yield from _of_operators(graph)


def _of_operators(graph: OpGraph) -> Iterator[str]:
    ops = {node.name: node.op.partition(".")[0] for node in graph.nodes}
    reduced = [node.args[0] for node in graph.nodes if ops[node.name] in _REDUCING]
    if len(reduced) > len(set(map(str, reduced))):
        yield "two reductions of one value"
    for node in graph.nodes:
        if ops[node.name] in _INDEXING and any(name.startswith("n") for name in references(node)[1:]):
            yield "a computed index"
    if sum(op in ("cat", "stack") for op in ops.values()):
        yield "values are joined"
    if len(graph.nodes) > 12:
        yield "more than 12 operators"


def _of_results(graph: OpGraph) -> Iterator[str]:
    yield f"{min(len(graph.outputs), 4)} results"
    if len({graph.spec(name).dtype for name in graph.outputs}) > 1:
        yield "results of several dtypes"
    if len({graph.spec(name).shape for name in graph.outputs}) > 1:
        yield "results of several shapes"
