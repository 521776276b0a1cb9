"""Finds out whether a graph repeats a problem of KernelBench. Compares hashes: one for each operator with its shapes,
and a sequence of hashes of the operators without shapes."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path

from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.graph import Operand, references

FILE = Path(__file__).with_name("kernelbench.json")
#: Two graphs are the same work if they share more than this part of their operators.
ALIKE = 0.9
#: Longer sequences cannot be similar to that of a task.
MOST_OPERATORS = 80
_NUMBERS = (int, float)
#: Operators that compute nothing.
_VIEWS = frozenset(
    "alias clone contiguous detach expand expand_as flatten getitem movedim permute reshape select slice split "
    "split_with_sizes squeeze t transpose unbind unflatten unsqueeze view chunk narrow".split()
)
#: Operators that take a shape as a list.
_SHAPED = ("layer_norm", "rms_norm")


def combinations(graph: OpGraph) -> Iterator[str]:
    """Yields a digest (12 hex digits) for each operator that computes something, made from its name, operand shapes and
    attributes. Negative dimensions are made positive, so that equal calls have equal digests."""
    shapes = {name: spec.shape for name, spec in specs_of(graph).items()}
    for node in computing(graph):
        yield _digest(_combination(node, shapes))


def sequence(graph: OpGraph) -> tuple[str, ...]:
    """Returns a digest for each operator that computes something, in order, made from its name and attributes, without
    shapes."""
    ranks = {name: len(spec.shape) for name, spec in specs_of(graph).items()}
    return tuple(_token(_attributes(node, ranks)) for node in computing(graph))


def computing(graph: OpGraph) -> Iterator[Node]:
    return (node for node in graph.nodes if node.op.partition(".")[0] not in _VIEWS)


def specs_of(graph: OpGraph) -> dict[str, TensorSpec]:
    """Returns name → spec (dtype, shape, strides) of all values of the graph."""
    return {value.name: value.spec for value in graph.inputs} | {node.name: node.spec for node in graph.nodes}


def likeness(left: Sequence[str], right: Sequence[str]) -> float:
    """Returns the similarity of two sequences, 0 to 1: twice the length of the longest common subsequence, divided by
    the sum of both lengths. At least one of them must not be empty."""
    row = [0] * (len(right) + 1)
    for one in left:
        before = 0
        for index, other in enumerate(right, 1):
            before, row[index] = row[index], before + 1 if one == other else max(row[index], row[index - 1])
    return 2 * row[-1] / (len(left) + len(right))


@dataclass(frozen=True)
class Benchmark:
    """The digests of a benchmark's problems. Training tasks must not repeat any of these problems."""

    combinations: frozenset[str]
    sequences: frozenset[tuple[str, ...]]
    _holding: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for one in self.sequences:
            for token in set(one):
                self._holding.setdefault(token, []).append(one)

    def repeats(self, graph: OpGraph) -> bool:
        """Whether the benchmark has an operator of this graph with the same shapes, or a similar sequence of
        operators."""
        if any(one in self.combinations for one in combinations(graph)):
            return True
        own = sequence(graph)
        return len(own) > 1 and self._alike(own)

    def _alike(self, own: tuple[str, ...]) -> bool:
        counts = Counter(own)
        # Sequences that share more than nine tenths have an operator in common: only those are compared.
        near = {other for token in counts for other in self._holding.get(token, ())}
        for other in near:
            together = len(own) + len(other)
            if 2 * min(len(own), len(other)) <= ALIKE * together:
                continue
            if 2 * (counts & Counter(other)).total() > ALIKE * together and likeness(own, other) > ALIKE:
                return True
        return False


def read(text: str) -> Benchmark:
    document = json.loads(text)
    return Benchmark(
        frozenset(document["combinations"]), frozenset(tuple(one.split()) for one in document["sequences"])
    )


def write(graphs: Iterable[OpGraph], about: dict[str, object]) -> str:
    """Returns the JSON text of a benchmark's file: the digests of `graphs`, and the fields `about`. Digests are sorted,
    so that the file does not show which digests belong to one problem."""
    every = list(graphs)
    sequences = {sequence(graph) for graph in every}
    content = {
        **about,
        "combinations": sorted({one for graph in every for one in combinations(graph)}),
        "sequences": sorted(" ".join(one) for one in sequences if 1 < len(one) <= MOST_OPERATORS),
    }
    return json.dumps(content, indent=0) + "\n"


@cache
def kernelbench() -> Benchmark:
    """Returns the digests of KernelBench's levels 1 to 3."""
    return read(FILE.read_text(encoding="utf-8"))


def _combination(node: Node, shapes: dict[str, tuple[str, ...]]) -> str:
    rank = len(shapes[first[0]]) if (first := references(node)) else 0

    def text(operand: Operand) -> str:
        if isinstance(operand, list):
            return "[" + ",".join(map(text, operand)) + "]"
        if isinstance(operand, str) and operand.startswith("%"):
            return "(" + ",".join(_free(size) for size in shapes[operand[1:]]) + ")"
        return _literal(operand, rank)

    return _text(node, text)


def _attributes(node: Node, ranks: dict[str, int]) -> str:
    rank = ranks[first[0]] if (first := references(node)) else 0
    shaped = node.op.partition(".")[0] in _SHAPED

    def text(operand: Operand) -> str:
        if isinstance(operand, list):
            return f"{len(operand)}" if shaped else "[" + ",".join(map(text, operand)) + "]"
        if isinstance(operand, str) and operand.startswith("%"):
            return "%"
        return _literal(operand, rank)

    return _text(node, text)


def _text(node: Node, text: Callable[[Operand], str]) -> str:
    words = [node.op, *map(text, node.args), *(f"{key}={text(node.kwargs[key])}" for key in sorted(node.kwargs))]
    return " ".join(words)


def _literal(operand: Operand, rank: int) -> str:
    if isinstance(operand, bool) or not isinstance(operand, _NUMBERS):
        return str(operand)
    if isinstance(operand, int) and -rank <= operand < 0:
        return str(float(operand + rank))
    return str(float(operand))


def _free(size: str) -> str:
    """Returns the size unchanged if it is a number, else `B`: the size then contains a free dimension."""
    return size if size.isdigit() else "B"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@lru_cache(maxsize=1 << 15)
def _token(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
