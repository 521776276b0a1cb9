"""Loops over a result: dimensions in the order of memory, names of loop variables, and lambdas over them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.sizes import Size, parse_size
from kernel_assistant_training.teacher.moving.moves import VIEWS, name_of
from kernel_assistant_training.teacher.moving.pull import At, Puller, memory_order
from kernel_assistant_training.teacher.text.expressions import numbered
from kernel_assistant_training.teacher.text.named import Named
from kernel_assistant_training.teacher.text.terms import ZERO, IndexTerm, Load, Term, TermWriter, loads

LETTERS = "ijklm"
HALVES = ("bf16", "f16")


@dataclass(frozen=True)
class Loops:
    """`at` is the position by loop variables, in the order of the result's dimensions; `letters` (the loop variables)
    and `sizes` are in the order of memory."""

    at: At
    letters: tuple[str, ...]
    sizes: tuple[Size, ...]

    @property
    def places(self) -> At:
        return tuple(IndexTerm(letter, uses=frozenset(letter)) for letter in self.letters)


def loops_of(shape: list[Size], strides: list[Size] | None = None) -> Loops:
    order = list(range(len(shape))) if strides is None else memory_order(shape, strides)
    looped = [dim for dim in order if shape[dim] != 1]
    if len(looped) > len(LETTERS):
        raise Unsupported(f"{len(looped)} dimensions")
    letters = dict(zip(looped, LETTERS, strict=False))
    at = tuple(
        IndexTerm(letters[dim], uses=frozenset(letters[dim])) if dim in letters else ZERO for dim in range(len(shape))
    )
    return Loops(at, tuple(letters.values()), tuple(shape[dim] for dim in looped))


def loops_of_value(puller: Puller, name: str) -> Loops:
    """Loops over a value of the graph, in the layout of its spec."""
    spec = puller.spec(name)
    strides = None if spec.strides is None else [parse_size(stride) for stride in spec.strides]
    return loops_of(puller.shape(name), strides)


def without_views(named: Named, name: str) -> str:
    """The value of which `name` is a view with the same memory; `name` itself if it is no such view."""
    nodes = {node.name: node for node in named.graph.nodes}
    while name in nodes and nodes[name].op.partition(".")[0] in VIEWS and nodes[name].spec.strides is None:
        source = name_of(nodes[name].args[0])
        if source not in nodes or nodes[source].spec.strides is not None:
            break
        name = source
    return name


def is_home(load: Load, loops: Loops, named: Named) -> bool:
    """Whether the load reads the same elements in the same order as the result is written."""
    texts = [place.text for place, size in zip(load.at, load.sizes, strict=True) if size != "1"]
    sizes = [size for size in load.sizes if size != "1"]
    return texts == list(loops.letters) and sizes == [named.size(size) for size in loops.sizes]


def parameters(found: Sequence[Load]) -> dict[int, str]:
    """A name for each load: its buffer's, with a number if the buffer is read at several positions."""
    names: dict[int, str] = {}
    for load in found:
        names[id(load)] = numbered(load.buffer, names.values())
    return names


def lambda_text(term: Term, arguments: Sequence[tuple[str, str]], names: dict[int, str], captures: bool = False) -> str:
    """`[](float x0) { return …; }` for a term. `names` has the names of its loads, by id."""
    head = f"[{'=' if captures else ''}]({', '.join(f'{ctype} {name}'.strip() for ctype, name in arguments)})"
    lines, value = TermWriter(lambda load: names[id(load)]).written(term)
    body = "".join(f"\n  {line}" for line in lines)
    return f"{head} {{{body}\n  return {value};\n}}" if body else f"{head} {{ return {value}; }}"


def launched(named: Named, used: str, arguments: Sequence[str]) -> list[str]:
    """The arguments of a launch: buffers and free dimensions that the text `used` has, in the graph's order, with
    `arguments` between them."""
    words = _words(used, named.prefix)
    buffers = [value.name for value in named.graph.inputs if f"{named.prefix}{value.name}" in words]
    sizes = [name for name in named.graph.dims if f"{named.prefix}{name}" in words]
    return [*buffers, *arguments, *sizes]


def _words(text: str, prefix: str) -> set[str]:
    return set(re.findall(re.escape(prefix) + r"\w+", text))


def all_loads(term: Term, dtypes: tuple[str, ...]) -> list[Load]:
    """The loads of a term. Raises Unsupported if one has another type than `dtypes`."""
    found = loads(term)
    if any(load.dtype not in dtypes for load in found):
        raise Unsupported("operands of other types")
    return found
