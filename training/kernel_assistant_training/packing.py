"""Packs conversations into rows of one length, with little padding and with flags that mark where each conversation
begins."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kernel_assistant_training.conversation import Tokens

#: Bits of a token's flags. A token with neither of the first two is padding.
PROMPT, LEARNED, FIRST = 1, 2, 4

Ids = NDArray[np.uint16]
Flags = NDArray[np.uint8]


@dataclass(frozen=True)
class PackedRows:
    """Rows of packed conversations. `ids` (n, length) are the tokens of n rows; `flags` (n, length) have the bits
    PROMPT, LEARNED and FIRST for each token."""

    ids: Ids
    flags: Flags

    def __len__(self) -> int:
        return len(self.ids)


@dataclass
class Packer:
    """Fills rows of `length` tokens. Once `at_hand` conversations wait, `add` makes a row of the longest waiting
    conversations that still fit. It drops conversations longer than a row; `left_out` counts them."""

    length: int
    at_hand: int = 64
    left_out: int = 0
    _waiting: list[Tokens] = field(default_factory=list)

    def add(self, conversation: Tokens) -> tuple[Ids, Flags] | None:
        """Adds a conversation, or counts it in `left_out` if it is longer than a row. Returns the ids and flags of a
        row, (length,) each, if `at_hand` conversations are waiting, else None."""
        if len(conversation.ids) > self.length:
            self.left_out += 1
            return None
        self._waiting.append(conversation)
        return self.row() if len(self._waiting) >= self.at_hand else None

    def row(self) -> tuple[Ids, Flags]:
        """Returns the ids and flags of a row, (length,) each, made of waiting conversations; all 0 if none waits. The
        oldest one is always included, so that none waits for ever."""
        ids, flags = np.zeros(self.length, np.uint16), np.zeros(self.length, np.uint8)
        end, chosen = 0, self._waiting.pop(0) if self._waiting else None
        while chosen is not None:
            stop = end + len(chosen.ids)
            ids[end:stop] = chosen.ids
            flags[end:stop] = np.where(chosen.learned, LEARNED, PROMPT)
            flags[end] |= FIRST
            end = stop
            chosen = self._longest(self.length - end)
        return ids, flags

    def _longest(self, room: int) -> Tokens | None:
        fitting = [number for number, waiting in enumerate(self._waiting) if len(waiting.ids) <= room]
        if not fitting:
            return None
        return self._waiting.pop(max(fitting, key=lambda number: len(self._waiting[number].ids)))
