"""A task as loops of the generator: with symbols as sizes if that is possible, else with numbers."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.loops.nest import Access, LoopNest, accesses, build_nest
from kernel_assistant.records import Node, OpGraph
from kernel_assistant.records.canonical import Canonical
from kernel_assistant.records.graph import Operand
from kernel_assistant_training.teacher.text.coded import coded
from kernel_assistant_training.teacher.text.sharing import share
from kernel_assistant_training.teacher.text.sizes import NoForm, Sizes

#: Reasons why a task has no loops that hold for numbers as sizes too.
_HOPELESS = ("reductions over different", "results of shapes that", "operator ", "a scan ", "scans ", "a window ")
FLOATS = ("f32", "bf16", "f16")


@dataclass(frozen=True)
class Lowered:
    """The loops of a task, and how its numbers are written. `constants` has the names of constants by value."""

    task: Canonical
    target: str
    nest: LoopNest
    sizes: Sizes
    constants: dict[float, str]

    @property
    def accesses(self) -> list[Access]:
        return accesses(self.nest)

    def buffers(self) -> list[str]:
        """The inputs that are read, in the graph's order, then the results."""
        read = {access.buffer for access in self.accesses}
        return [
            *(value.name for value in self.task.graph.inputs if value.name in read),
            *(access.buffer for access, _ in self.nest.stores),
        ]


class _Last(threading.local):
    """The task that was lowered last, because several families ask for the same task in turn."""

    task: Canonical | None = None
    found: tuple[LoopNest, Canonical | None] | str = ""


_LAST = _Last()


def lowered(task: Canonical, target: str) -> Lowered:
    """Lowers a task. Raises NoForm if it has no loops."""
    if _LAST.task is not task:
        _LAST.task, _LAST.found = task, _nest(task)
    if isinstance(_LAST.found, str):
        raise NoForm(_LAST.found)
    nest, numbers = _LAST.found
    constants = {number: name for name, number in task.constants.items()}
    # The caller may change the order of the loops.
    nest = replace(nest, outer=[*nest.outer], reduced=[*nest.reduced], inner=[*nest.inner])
    return Lowered(task, target, nest, Sizes(task, target, numbers), constants)


def _nest(task: Canonical) -> tuple[LoopNest, Canonical | None] | str:
    """The loops, and the task whose numbers they have as sizes (None if they have symbols); or the reason why there are
    none."""
    try:
        nest = build_nest(with_constants(task.graph, task.constants))
        share(nest, task.sizes)
        return nest, None
    except (Unsupported, AssertionError) as unsupported:
        if str(unsupported).startswith(_HOPELESS):
            return str(unsupported)
    numbers = coded(task) or task
    try:
        nest = build_nest(numbers.concrete())
        share(nest, numbers.sizes)
        return nest, numbers
    except Unsupported as error:
        return str(error)


def with_constants(graph: OpGraph, constants: Mapping[str, float]) -> OpGraph:
    """The graph with numbers in place of C0, C1, …; sizes keep their names."""
    if not constants:
        return graph
    return OpGraph(
        dims=graph.dims,
        inputs=graph.inputs,
        nodes=tuple(_with_constants(node, constants) for node in graph.nodes),
        outputs=graph.outputs,
    )


def _with_constants(node: Node, constants: Mapping[str, float]) -> Node:
    def number(operand: Operand) -> Operand:
        if isinstance(operand, list):
            return [constants.get(item, item) if isinstance(item, str) else item for item in operand]
        return constants.get(operand, operand) if isinstance(operand, str) else operand

    args = tuple(map(number, node.args))
    kwargs = {key: number(operand) for key, operand in node.kwargs.items()}
    if args == node.args and kwargs == node.kwargs:
        return node
    return msgspec.structs.replace(node, args=args, kwargs=kwargs)
