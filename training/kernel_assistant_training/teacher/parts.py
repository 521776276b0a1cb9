"""Tasks that need several kernels. The graph is cut between operators; values in between go through scratch buffers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.lower.lower import IGNORED
from kernel_assistant.generator.lower.pointwise import BINARY, COMPARE, PARAMETRIC, SPECIAL, UNARY
from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.canonical import Canonical
from kernel_assistant.records.graph import GraphInput, Operand, references
from kernel_assistant_training.teacher.steps import in_two_steps
from kernel_assistant_training.teacher.text.answer import Answer, joined, renamed, taken_apart

Writing = Callable[[Canonical, str, Random], list[Answer]]
#: Longer intervals that are tried behind one that no family can write.
PATIENCE = 1
ELEMENTWISE = frozenset({*UNARY, *PARAMETRIC, *BINARY, *COMPARE, *SPECIAL})
#: A kernel's name, and that of its arguments.
_ENDS = ("", "_args")
#: The name inside a part of a result of the task that it reads.
_SEEN = "seen"
_SEEN_WORDS = re.compile(rf"\b{_SEEN}\d+(?:_\d+)?\b")
#: Kernels of one answer.
MOST_PARTS = 5


@dataclass(frozen=True)
class _FamilyKernels:
    """The kernels that a family wrote for an interval: its answers, and the buffers of its results."""

    answers: list[Answer]
    buffers: tuple[str, ...]


def in_parts(task: Canonical, target: str, random: Random, write: Writing, count: int) -> list[Answer]:
    """Answers of several kernels, best guess first; one answer if `count` is 1. [] if no family can write some node, or
    if too many kernels would be needed."""
    try:
        graph = in_two_steps(task)
    except (Unsupported, ValueError):
        return []
    nodes = [node for node in graph.nodes if node.op.partition(".")[0] not in IGNORED]
    # Families refused the whole graph before.
    unchanged = len(nodes) == len(task.graph.nodes) and all(
        new.op == old.op and new.spec == old.spec and old.spec.strides is None
        for new, old in zip(nodes, task.graph.nodes, strict=True)
    )
    cutter = _Cutter(replace_nodes(graph, nodes), task, target, random, write, whole=not unchanged)
    parts = cutter.parts()
    if not parts:
        return []
    found = [_together(parts, cutter.scratch, [part.answers[0] for part in parts])]
    if count == 1:
        return found
    for place, part in enumerate(parts):
        for other in part.answers[1:3]:
            chosen = [one.answers[0] for one in parts]
            chosen[place] = other
            found.append(_together(parts, cutter.scratch, chosen))
    return [found[0], *random.sample(found[1:], len(found) - 1)]


def replace_nodes(graph: OpGraph, nodes: Sequence[Node]) -> OpGraph:
    return OpGraph(dims=graph.dims, inputs=graph.inputs, nodes=tuple(nodes), outputs=graph.outputs)


class _Cutter:
    """Cuts a graph into as few intervals of nodes as possible: each is the longest that one kernel family can write.
    `whole` says whether the whole graph may be one interval.
    """

    def __init__(
        self, graph: OpGraph, task: Canonical, target: str, random: Random, write: Writing, whole: bool
    ) -> None:
        inside = [node if node.name in graph.outputs else _contiguous(node) for node in graph.nodes]
        self._graph = graph = replace_nodes(graph, inside)
        self._task, self._target, self._random, self._write = task, target, random, write
        self._tries_whole = whole
        self._names: dict[str, str] = {}
        self._specs = {value.name: value.spec for value in graph.inputs}
        self._specs.update((node.name, node.spec) for node in graph.nodes)
        for number, name in enumerate(graph.outputs):
            self._names.setdefault(name, f"out{number}")
        #: The buffers between kernels, by name in the source.
        self.scratch: dict[str, TensorSpec] = {}

    def parts(self) -> list[_FamilyKernels]:
        """The kernels of the intervals, in order; [] if the graph cannot be cut into at most `MOST_PARTS` intervals."""
        found: list[_FamilyKernels] = []
        begin, nodes = 0, self._graph.nodes
        if len(set(self._graph.outputs)) < len(self._graph.outputs):
            return []
        while begin < len(nodes):
            end, part = self._longest(begin)
            if part is None or len(found) == MOST_PARTS:
                return []
            found.append(part)
            begin = end
        return found

    def _longest(self, begin: int) -> tuple[int, _FamilyKernels | None]:
        """The end of the longest interval that a family can write, and its kernels."""
        whole = len(self._graph.nodes)
        # Often one kernel can compute the rest.
        if begin and (found := self._written(begin, whole)):
            return whole, self._part(begin, whole, found)
        limit = whole + (begin == 0 and self._tries_whole)
        ends = [end for end in range(begin + 1, limit) if not self._takes_apart(end)]
        # A family that takes a node mostly takes the elementwise nodes after it too, so other ends are tried first.
        wide = [end for end in ends if end == whole or not _elementwise(self._graph.nodes[end])]
        best: list[Answer] = []
        last, failed = begin, 0
        for end in wide:
            if best and failed > PATIENCE:
                break
            found = self._written(begin, end)
            last, best, failed = (end, found, 0) if found else (last, best, failed + 1)
        limit = min((end for end in wide if end > last), default=whole)
        for end in reversed([end for end in ends if last < end < limit]):
            if found := self._written(begin, end):
                last, best = end, found
                break
        if not best:
            return begin, None
        last, best = self._without_tail(begin, last, best)
        return last, self._part(begin, last, best)

    def _without_tail(self, begin: int, last: int, answers: list[Answer]) -> tuple[int, list[Answer]]:
        """The interval without elementwise nodes at its end, if fewer values are passed on then."""
        crossing, end = len(self._results(begin, last)), last
        while crossing > 1 and end - 1 > begin and _elementwise(self._graph.nodes[end - 1]):
            end -= 1
            if len(self._results(begin, end)) < crossing and (found := self._written(begin, end)):
                return end, found
        return last, answers

    def _part(self, begin: int, end: int, answers: list[Answer]) -> _FamilyKernels:
        return _FamilyKernels(answers, tuple(map(self._name, self._results(begin, end))))

    def _written(self, begin: int, end: int) -> list[Answer]:
        return self._write(self._subtask(begin, end, self._results(begin, end)), self._target, self._random)

    def _takes_apart(self, end: int) -> bool:
        """Whether the next node selects one of several results."""
        return end < len(self._graph.nodes) and self._graph.nodes[end].op.startswith("getitem")

    def _results(self, begin: int, end: int) -> tuple[str, ...]:
        """The values of an interval that later nodes read or that are results of the task."""
        later = {name for node in self._graph.nodes[end:] for name in references(node)} | set(self._graph.outputs)
        return tuple(node.name for node in self._graph.nodes[begin:end] if node.name in later)

    def _name(self, value: str) -> str:
        if value not in self._names:
            name = f"w{len(self.scratch)}"
            self._names[value], self.scratch[name] = name, self._specs[value]
        return self._names[value]

    def _subtask(self, begin: int, end: int, results: tuple[str, ...]) -> Canonical:
        nodes = self._graph.nodes[begin:end]
        inside = {node.name for node in nodes}
        read = {name for node in nodes for name in references(node)} - inside
        inputs = [value for value in self._graph.inputs if value.name in read]
        inputs += [
            GraphInput(name=_read_as(self._names[node.name]), spec=node.spec)
            for node in self._graph.nodes[:begin]
            if node.name in read
        ]
        names = {name: _read_as(self._names[name]) for name in read if name in self._names}
        graph = OpGraph(
            dims=self._graph.dims,
            inputs=tuple(inputs),
            nodes=tuple(_reading(node, names) for node in nodes),
            outputs=results,
        )
        return Canonical(graph=graph, sizes=self._task.sizes, constants=self._task.constants)


def _read_as(buffer: str) -> str:
    """The name that a part uses for a result of the graph that it reads. It must differ from `buffer`, because the part
    names its own results out0, out1, … too.
    """
    return buffer.replace("out", _SEEN, 1)


def _contiguous(node: Node) -> Node:
    """The node with contiguous memory, as all values in scratch buffers have."""
    if node.spec.strides is None:
        return node
    spec = TensorSpec(dtype=node.spec.dtype, shape=node.spec.shape)
    return Node(name=node.name, op=node.op, args=node.args, kwargs=node.kwargs, spec=spec)


def _elementwise(node: Node) -> bool:
    return node.op.partition(".")[0] in ELEMENTWISE


def _reading(node: Node, names: dict[str, str]) -> Node:
    """The node with the names that values of other parts have in this part's source."""

    def named(operand: Operand) -> Operand:
        if isinstance(operand, list):
            return [f"%{names[item[1:]]}" if isinstance(item, str) and item[1:] in names else item for item in operand]
        return f"%{names[operand[1:]]}" if isinstance(operand, str) and operand[1:] in names else operand

    if not any(name in names for name in references(node)):
        return node
    kwargs = {key: named(operand) for key, operand in node.kwargs.items()}
    return Node(name=node.name, op=node.op, args=tuple(map(named, node.args)), kwargs=kwargs, spec=node.spec)


def _together(parts: Sequence[_FamilyKernels], scratch: dict[str, TensorSpec], answers: Sequence[Answer]) -> Answer:
    """Joins parts into one source. Kernels, and constants and scratch buffers of one name, are numbered."""
    pieces = []
    kernels = 0
    for number, (part, answer) in enumerate(zip(parts, answers, strict=True)):
        own = taken_apart(answer.source)
        names = {f"out{place}": buffer for place, buffer in enumerate(part.buffers)}
        names.update({f"k{one}{end}": f"k{kernels + one}{end}" for one in range(len(own.launches)) for end in _ENDS})
        names.update((word, word.replace(_SEEN, "out", 1)) for word in _SEEN_WORDS.findall(answer.source))
        if number:
            ours = [one.partition("=")[0] for one in own.sets] + [one.split()[0] for one in own.scratch]
            names.update({name: f"{name}{number}" for name in ours})
        pieces.append(taken_apart(renamed(answer.source, names)))
        kernels += len(own.launches)
    whole = joined(pieces)
    between = tuple(f"{name} {spec.dtype}[{', '.join(spec.shape)}]" for name, spec in scratch.items())
    families = tuple(dict.fromkeys(family for answer in answers for family in answer.families))
    return Answer(replace(whole, scratch=(*between, *whole.scratch)).source(), ("parts", *families))
