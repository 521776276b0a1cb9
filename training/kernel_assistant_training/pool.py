"""Rows of tokens in shared memory. Each writer fills a ring buffer of its own, called a part; one reader reads all
parts.

A writer fills a row and then increments `written`; the reader copies a row and then increments `given`. Each counter is
changed by either the writer or the reader, never by both.
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
from kernel_assistant_training.packing import Flags, Ids, PackedRows

_SHARED = Path("/dev/shm")
#: Rows of a part that its writer may be about to overwrite, and that are therefore not drawn again.
_MARGIN = 2
#: Conversations whose hash is kept, for each row of a part.
_HASHES = 16


@dataclass(frozen=True)
class SharedRowsShape:
    """The shape of the shared memory: it keeps the newest `kept` rows of `length` tokens for each of `parts`
    writers."""

    parts: int
    kept: int
    length: int


class SharedRows:
    """Rows of tokens in shared memory. Without `name` the memory is created; with `name` existing memory is attached.
    `close` deletes the memory in the process that created it.

    Raises UsageError if the system's shared memory has too little room.
    """

    def __init__(self, shape: SharedRowsShape, name: str = "") -> None:
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
        arrays, offset = {}, 0
        for (field, dtype, size), length in zip(fields, sizes, strict=True):
            arrays[field] = np.ndarray(size, dtype, self._memory.buf, offset)
            offset += length
        self.written: NDArray[np.int64] = arrays["written"]
        self.given: NDArray[np.int64] = arrays["given"]
        self.conversations: NDArray[np.int64] = arrays["conversations"]
        self.left_out: NDArray[np.int64] = arrays["left_out"]
        self._hashes: NDArray[np.uint64] = arrays["hashes"]
        self._ids: NDArray[np.uint16] = arrays["ids"]
        self._flags: NDArray[np.uint8] = arrays["flags"]

    # Methods of a writer.

    def is_full(self, part: int) -> bool:
        """Whether the next row of writer number `part` would overwrite a row that the reader has not read."""
        return bool(self.written[part] - self.given[part] >= self.shape.kept)

    def write(self, part: int, ids: Ids, flags: Flags) -> None:
        index = self.written[part] % self.shape.kept
        self._ids[part, index], self._flags[part, index] = ids, flags
        self.written[part] += 1

    def count(self, part: int, number: int, left_out: int) -> None:
        """Counts a conversation of writer number `part`. `number` is the conversation's hash; `left_out` is the number
        of this writer's conversations so far that were too long."""
        made = self.conversations[part]
        self._hashes[part, made % self._hashes.shape[1]] = number
        self.conversations[part] += 1
        self.left_out[part] = left_out

    # Methods of the reader.

    def fresh(self, most: int) -> tuple[NDArray[np.int64], int]:
        """Chooses up to `most` rows that were not read yet, spread evenly over the writers. Returns their positions,
        pairs (writer, row number) of shape (n, 2), and n."""
        positions: list[NDArray[np.int64]] = []
        waiting = self.written - self.given
        left = most
        # The fullest part is last, because it makes up for the others.
        for turn, part in enumerate(np.argsort(waiting)):
            share = min(int(waiting[part]), -(-left // (self.shape.parts - turn)))
            numbers = self.given[part] + np.arange(share)
            positions.append(np.stack([np.full(share, part), numbers], axis=1))
            left -= share
        return np.concatenate(positions), most - left

    def even(self, count: int) -> tuple[NDArray[np.int64], int]:
        """Chooses `count` rows that were not read yet, the same number from each writer. Returns their positions, as
        `fresh` does, and `count`. Raises ValueError if `count` is no multiple of the number of writers."""
        share, rest = divmod(count, self.shape.parts)
        if rest:
            raise ValueError(f"{count} rows cannot be shared evenly by {self.shape.parts} parts")
        positions = [
            np.stack([np.full(share, part), first + np.arange(share)], 1) for part, first in enumerate(self.given)
        ]
        return np.concatenate(positions), count

    def again(self, count: int, random: np.random.Generator) -> NDArray[np.int64]:
        """Returns the positions, of shape (`count`, 2), of random rows that are still in memory, whether or not they
        were read before."""
        written = self.written.copy()
        first = np.maximum(written - self.shape.kept + _MARGIN, 0)
        many = np.maximum(written - first, 0)
        drawn = random.integers(0, max(int(many.sum()), 1), count)
        ends = np.cumsum(many)
        part = np.searchsorted(ends, drawn, side="right")
        return np.stack([part, first[part] + drawn - (ends - many)[part]], axis=1) if count else np.zeros((0, 2), int)

    def rows(self, positions: NDArray[np.int64]) -> PackedRows:
        part, number = positions[:, 0], positions[:, 1] % self.shape.kept
        return PackedRows(self._ids[part, number], self._flags[part, number])

    def give(self, positions: NDArray[np.int64]) -> None:
        self.given += np.bincount(positions[:, 0], minlength=self.shape.parts)

    def different(self) -> int:
        """Returns the number of different conversations among the newest ones, whose hashes are kept."""
        known = [part[:made] for part, made in zip(self._hashes, self.conversations, strict=True)]
        return len(np.unique(np.concatenate(known)))

    def close(self) -> None:
        """Detaches from the memory, and deletes it if this process created it. The arrays are empty afterwards."""
        for name in ("written", "given", "conversations", "left_out", "_hashes", "_ids", "_flags"):
            setattr(self, name, np.zeros(0, np.int64))
        self._memory.close()
        if self._own:
            self._memory.unlink()
