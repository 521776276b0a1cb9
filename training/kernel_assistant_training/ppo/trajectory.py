"""A trajectory: one episode as the tokens that were sampled and read, for training.

What the model said goes in as the ids that it sampled, everything else as the engine read it (`speech.py`); nothing is
cut into tokens twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from kernel_assistant.records.codec import Record
from kernel_assistant_training.ppo.rewards import Reward


@dataclass(frozen=True)
class Said:
    """`ids` of a whole conversation; each of `spans` is (begin, count) of the tokens of one reply, in order, and
    `logprobs` has one number for each of these tokens."""

    ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    logprobs: tuple[float, ...]


class Trajectory(Record, frozen=True, kw_only=True):
    """One episode. `ids` are little-endian int32, `logprobs` float32 of the actions alone, which are the tokens in
    `spans` (begin, count): the policy's own, before temperature. `key` is the canonical graph's, `seed` the episode's.

    `calls` says for each reply what it asked for: "evaluate", "finish", "idle" (nothing) or "schema" (something that
    could not be read). `candidates` are the hashes of what was judged, in order. `stop` is how it ended; `void` that
    the judge was lost in it, so that its reward says nothing; `cut_off` that its last reply came to no end of its own.
    """

    key: str
    seed: int
    target: str
    iteration: int
    ids: bytes
    spans: tuple[tuple[int, int], ...]
    logprobs: bytes
    reward: Reward
    stop: str
    calls: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ()
    best_ms: float | None = None
    eager_ms: float = 0.0
    void: bool = False
    cut_off: bool = False

    def __post_init__(self) -> None:
        end = 0
        for begin, count in self.spans:
            if count < 1 or begin < max(end, 1):
                raise ValueError("spans are in order, do not overlap, and something stands before the first")
            end = begin + count
        if end > self.length:
            raise ValueError("a span ends behind the tokens")
        if len(self.logprobs) != 4 * self.actions:
            raise ValueError("one log-probability for each action")

    @classmethod
    def of(cls, said: Said, **fields: Any) -> Self:
        ids, logprobs = np.asarray(said.ids, "<i4").tobytes(), np.asarray(said.logprobs, "<f4").tobytes()
        return cls(ids=ids, spans=said.spans, logprobs=logprobs, **fields)

    @property
    def length(self) -> int:
        """Tokens."""
        return len(self.ids) // 4

    @property
    def actions(self) -> int:
        """Tokens that the model wrote."""
        return sum(count for _, count in self.spans)

    @property
    def turns(self) -> int:
        return len(self.spans)

    def said(self) -> Said:
        ids, logprobs = np.frombuffer(self.ids, "<i4").tolist(), np.frombuffer(self.logprobs, "<f4").tolist()
        return Said(tuple(ids), self.spans, tuple(logprobs))
