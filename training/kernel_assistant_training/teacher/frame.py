"""Loops over a result: its dimensions in the order of memory, what they are called, and text around a value in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_assistant.generator.errors import Unsupported
from kernel_assistant.generator.sizes import Size, parse_size
from kernel_assistant_training.teacher.expressions import numbered
from kernel_assistant_training.teacher.moves import VIEWS, name_of
from kernel_assistant_training.teacher.named import Named
from kernel_assistant_training.teacher.pull import At, Puller, memory_order
from kernel_assistant_training.teacher.terms import ZERO, Load, Place, Term, Writer, loads

LETTERS = "ijklm"
HALVES = ("bf16", "f16")


@dataclass(frozen=True)
class Loops:
    """`at` is the position in the order of the result's dimensions; `letters` and `sizes` follow memory."""

    at: At
    letters: tuple[str, ...]
    sizes: tuple[Size, ...]

    @property
    def places(self) -> At:
        return tuple(Place(letter, uses=frozenset(letter)) for letter in self.letters)


def loops_of(shape: list[Size], strides: list[Size] | None = None) -> Loops:
    order = list(range(len(shape))) if strides is None else memory_order(shape, strides)
    looped = [dim for dim in order if shape[dim] != 1]
    if len(looped) > len(LETTERS):
        raise Unsupported(f"{len(looped)} dimensions")
    letters = dict(zip(looped, LETTERS, strict=False))
    at = tuple(
        Place(letters[dim], uses=frozenset(letters[dim])) if dim in letters else ZERO for dim in range(len(shape))
    )
    return Loops(at, tuple(letters.values()), tuple(shape[dim] for dim in looped))


def loops_of_value(puller: Puller, name: str) -> Loops:
    """Of a value as its spec says that it is written."""
    spec = puller.spec(name)
    strides = None if spec.strides is None else [parse_size(stride) for stride in spec.strides]
    return loops_of(puller.shape(name), strides)


def without_views(named: Named, name: str) -> str:
    """The value whose memory is that of `name`: behind views of what is contiguous."""
    nodes = {node.name: node for node in named.graph.nodes}
    while name in nodes and nodes[name].op.partition(".")[0] in VIEWS and nodes[name].spec.strides is None:
        source = name_of(nodes[name].args[0])
        if source not in nodes or nodes[source].spec.strides is not None:
            break
        name = source
    return name


def is_home(load: Load, loops: Loops, named: Named) -> bool:
    """Whether the buffer is read as the result is written: the same elements in the same order."""
    texts = [place.text for place, size in zip(load.at, load.sizes, strict=True) if size != "1"]
    sizes = [size for size in load.sizes if size != "1"]
    return texts == list(loops.letters) and sizes == [named.size(size) for size in loops.sizes]


def parameters(found: Sequence[Load]) -> dict[int, str]:
    """A name for each load: its buffer's, with a number where it is read at several places."""
    names: dict[int, str] = {}
    for load in found:
        names[id(load)] = numbered(load.buffer, names.values())
    return names


def lambda_text(term: Term, arguments: Sequence[tuple[str, str]], names: dict[int, str], captures: bool = False) -> str:
    """`[](float x0) { return …; }` for a term whose loads have names."""
    head = f"[{'=' if captures else ''}]({', '.join(f'{ctype} {name}'.strip() for ctype, name in arguments)})"
    lines, value = Writer(lambda load: names[id(load)]).written(term)
    body = "".join(f"\n  {line}" for line in lines)
    return f"{head} {{{body}\n  return {value};\n}}" if body else f"{head} {{ return {value}; }}"


def launched(named: Named, used: str, arguments: Sequence[str]) -> list[str]:
    """Buffers and free dimensions that a kernel's text takes, in the graph's order, results last."""
    words = _words(used, named.prefix)
    buffers = [value.name for value in named.graph.inputs if f"{named.prefix}{value.name}" in words]
    sizes = [name for name in named.graph.dims if f"{named.prefix}{name}" in words]
    return [*buffers, *arguments, *sizes]


def _words(text: str, prefix: str) -> set[str]:
    return set(re.findall(re.escape(prefix) + r"\w+", text))


def all_loads(term: Term, dtypes: tuple[str, ...]) -> list[Load]:
    """The loads below a term. Raises Unsupported where one is of another type."""
    found = loads(term)
    if any(load.dtype not in dtypes for load in found):
        raise Unsupported("operands of other types")
    return found
