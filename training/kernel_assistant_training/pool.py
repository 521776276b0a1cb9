"""Rows in shared memory: one part for each writer, used as a ring, and one reader of them all.

A writer fills a row and then counts it in `written`; the reader copies a row and then counts it in `given`. Each number
has one writer, and both sides only look at the other's.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_assistant.errors import UsageError
from kernel_assistant_training.packing import Flags, Ids, Rows

_SHARED = Path("/dev/shm")
#: Of a part: rows that a writer may be about to write, which are not drawn again.
_MARGIN = 2
#: Conversations of which a hash is kept, for each row of a part.
_HASHES = 16


@dataclass(frozen=True)
class PoolShape:
    """`kept` rows of `length` tokens for each of `parts` writers."""

    parts: int
    kept: int
    length: int


class Pool:
    """Made without a name, attached to with one. `close` ends it for everybody where it was made.

    Raises UsageError where the system's shared memory has no room for it.
    """

    def __init__(self, shape: PoolShape, name: str = "") -> None:
        self.shape = shape
        counters = [("written", np.int64), ("given", np.int64), ("conversations", np.int64), ("left_out", np.int64)]
        fields: list[tuple[str, Any, tuple[int, ...]]] = [(field, dtype, (shape.parts,)) for field, dtype in counters]
        fields += [
            ("hashes", np.uint64, (shape.parts, shape.kept * _HASHES)),
            ("ids", np.uint16, (shape.parts, shape.kept, shape.length)),
            ("flags", np.uint8, (shape.parts, shape.kept, shape.length)),
        ]
        sizes = [int(np.prod(size)) * np.dtype(dtype).itemsize for _, dtype, size in fields]
        self._own = not name
        if self._own and _SHARED.is_dir() and shutil.disk_usage(_SHARED).free < sum(sizes):
            raise UsageError(f"{_SHARED} has no room for {sum(sizes) >> 20} MiB", "pass a smaller --keep")
        # Pages that nobody writes to take no memory.
        self._memory = SharedMemory(name or None, create=not name, size=sum(sizes) if not name else 0)
        self.name = self._memory.name
        arrays, place = {}, 0
        for (field, dtype, size), length in zip(fields, sizes, strict=True):
            arrays[field] = np.ndarray(size, dtype, self._memory.buf, place)
            place += length
        self.written: NDArray[np.int64] = arrays["written"]
        self.given: NDArray[np.int64] = arrays["given"]
        self.conversations: NDArray[np.int64] = arrays["conversations"]
        self.left_out: NDArray[np.int64] = arrays["left_out"]
        self._hashes: NDArray[np.uint64] = arrays["hashes"]
        self._ids: NDArray[np.uint16] = arrays["ids"]
        self._flags: NDArray[np.uint8] = arrays["flags"]

    # A writer's side.

    def is_full(self, part: int) -> bool:
        """Whether the next row would take the place of one that nobody has had."""
        return bool(self.written[part] - self.given[part] >= self.shape.kept)

    def write(self, part: int, ids: Ids, flags: Flags) -> None:
        place = self.written[part] % self.shape.kept
        self._ids[part, place], self._flags[part, place] = ids, flags
        self.written[part] += 1

    def count(self, part: int, number: int, left_out: int) -> None:
        """A conversation with its hash; how many were too long so far."""
        made = self.conversations[part]
        self._hashes[part, made % self._hashes.shape[1]] = number
        self.conversations[part] += 1
        self.left_out[part] = left_out

    # The reader's side.

    def fresh(self, most: int) -> tuple[NDArray[np.int64], int]:
        """Part and number, (n, 2), of up to `most` rows that were not given out, taken evenly; and n."""
        found: list[NDArray[np.int64]] = []
        waiting = self.written - self.given
        left = most
        # The fullest last: what others lack is theirs to give.
        for turn, part in enumerate(np.argsort(waiting)):
            share = min(int(waiting[part]), -(-left // (self.shape.parts - turn)))
            numbers = self.given[part] + np.arange(share)
            found.append(np.stack([np.full(share, part), numbers], axis=1))
            left -= share
        return np.concatenate(found), most - left

    def even(self, count: int) -> tuple[NDArray[np.int64], int]:
        """The same, (n, 2) and n, with as many of each part, whatever else waits. Raises ValueError for a `count` that
        cannot be shared evenly."""
        share, rest = divmod(count, self.shape.parts)
        if rest:
            raise ValueError(f"{count} rows cannot be shared evenly by {self.shape.parts} parts")
        found = [np.stack([np.full(share, part), first + np.arange(share)], 1) for part, first in enumerate(self.given)]
        return np.concatenate(found), count

    def again(self, count: int, random: np.random.Generator) -> NDArray[np.int64]:
        """`count` rows among those that are there, all alike. None where `count` is 0."""
        written = self.written.copy()
        first = np.maximum(written - self.shape.kept + _MARGIN, 0)
        many = np.maximum(written - first, 0)
        drawn = random.integers(0, max(int(many.sum()), 1), count)
        ends = np.cumsum(many)
        part = np.searchsorted(ends, drawn, side="right")
        return np.stack([part, first[part] + drawn - (ends - many)[part]], axis=1) if count else np.zeros((0, 2), int)

    def rows(self, places: NDArray[np.int64]) -> Rows:
        part, number = places[:, 0], places[:, 1] % self.shape.kept
        return Rows(self._ids[part, number], self._flags[part, number])

    def give(self, places: NDArray[np.int64]) -> None:
        self.given += np.bincount(places[:, 0], minlength=self.shape.parts)

    def different(self) -> int:
        """Number of different hashes among those kept."""
        known = [part[:made] for part, made in zip(self._hashes, self.conversations, strict=True)]
        return len(np.unique(np.concatenate(known)))

    def close(self) -> None:
        """Its arrays are gone after this."""
        for name in ("written", "given", "conversations", "left_out", "_hashes", "_ids", "_flags"):
            setattr(self, name, np.zeros(0, np.int64))
        self._memory.close()
        if self._own:
            self._memory.unlink()
