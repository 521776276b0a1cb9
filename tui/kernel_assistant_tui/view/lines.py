"""The lines of a transcript: append-only, so that a fold costs as much as what is new."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import overload

import msgspec


class Kind(str, Enum):
    """What a line tells; the widget gives each a style of its own."""

    phase = "phase"
    said = "said"  # by the model
    code = "code"  # in what the model said
    call = "call"  # of a tool
    heard = "heard"  # what a tool or the judge answered
    user = "user"
    good = "good"  # a correct candidate
    bad = "bad"
    detail = "detail"  # of a bad candidate: a compiler's message, a wrong element
    best = "best"
    free = "free"
    warning = "warning"
    failure = "failure"
    end = "end"


class Line(msgspec.Struct, frozen=True, gc=False):
    """`conversation` counts from 1, 0 for what belongs to none; `time` is seconds since the epoch, 0 where an earlier
    line of the same event has it."""

    kind: Kind
    text: str
    conversation: int = 0
    time: float = 0.0


class Lines(Sequence[Line]):
    """Immutable to whoever holds one. Those that grew out of each other share their storage."""

    __slots__ = ("_count", "_shared")

    def __init__(self) -> None:
        self._shared: list[Line] = []
        self._count = 0

    def plus(self, new: Iterable[Line]) -> Lines:
        """These and `new` behind them."""
        grown = Lines()
        # Another fold went on from here already: its lines are not ours.
        grown._shared = self._shared if len(self._shared) == self._count else self._shared[: self._count]
        grown._shared.extend(new)
        grown._count = len(grown._shared)
        return grown

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> Line: ...
    @overload
    def __getitem__(self, place: slice) -> list[Line]: ...
    def __getitem__(self, place: int | slice) -> Line | list[Line]:
        if isinstance(place, slice):
            return [self._shared[one] for one in range(*place.indices(self._count))]
        if not -self._count <= place < self._count:
            raise IndexError(place)
        return self._shared[place % self._count]
