"""The lines of a transcript. They are append-only, so that the cost of adding lines depends only on the new lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import overload

import msgspec


class LineKind(str, Enum):
    """The kind of a line. The widget has a style for each kind."""

    phase = "phase"
    said = "said"  # text of the model
    code = "code"  # code in a reply of the model
    call = "call"  # call of a tool
    heard = "heard"  # the task, or the answer of a tool
    user = "user"
    good = "good"  # a correct candidate
    bad = "bad"
    detail = "detail"  # of a failed candidate: a compiler message, a wrong element
    best = "best"
    free = "free"
    warning = "warning"
    failure = "failure"
    end = "end"


class Line(msgspec.Struct, frozen=True, gc=False):
    """A line of a transcript. `conversation` counts from 1; it is 0 for lines that belong to no conversation. `time`
    is in seconds since the epoch for the first line of an event, and 0 for the other lines."""

    kind: LineKind
    text: str
    conversation: int = 0
    time: float = 0.0


class Lines(Sequence[Line]):
    """An immutable sequence of lines. A sequence made by `plus` shares its storage with the original one."""

    __slots__ = ("_count", "_shared")

    def __init__(self) -> None:
        self._shared: list[Line] = []
        self._count = 0

    def plus(self, new: Iterable[Line]) -> Lines:
        """Return a sequence of these lines followed by `new`."""
        grown = Lines()
        # If lines were appended to the shared list already, they are not ours: copy it.
        grown._shared = self._shared if len(self._shared) == self._count else self._shared[: self._count]
        grown._shared.extend(new)
        grown._count = len(grown._shared)
        return grown

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Line: ...
    @overload
    def __getitem__(self, index: slice) -> list[Line]: ...
    def __getitem__(self, index: int | slice) -> Line | list[Line]:
        if isinstance(index, slice):
            return [self._shared[one] for one in range(*index.indices(self._count))]
        if not -self._count <= index < self._count:
            raise IndexError(index)
        return self._shared[index % self._count]
