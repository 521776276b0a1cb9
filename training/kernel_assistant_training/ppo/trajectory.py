"""A trajectory: the tokens of one episode, both those that the model sampled and those that it only read.

The model's replies are kept as the sampled ids, all other text as the ids that the engine read (`chat_format.py`); no
text is tokenised again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from kernel_assistant.records.codec import Record
from kernel_assistant_training.ppo.rewards import Reward


@dataclass(frozen=True)
class ReplySpans:
    """The tokens `ids` of a whole conversation. `spans` has (begin, count) of each reply's tokens, in order; `logprobs`
    has the log-probability of each token of the replies."""

    ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    logprobs: tuple[float, ...]


class Trajectory(Record, frozen=True, kw_only=True):
    """One episode. `ids` are little-endian int32; `spans` gives (begin, count) of each reply's tokens, which are the
    actions. `logprobs` are the policy's log-probabilities of the actions before temperature, as float32. `key` is the
    key of the task's canonical graph, `seed` the number of the episode.

    `calls` has a word for each reply: "evaluate", "finish", "idle" (no call), "schema" (a call that could not be
    parsed) or "tool". `candidates` are the hashes of the evaluated candidates, in order, and `outcomes` their outcomes.
    `stop` is the stop reason. `void`: whether the judge was lost or other work disturbed every measurement, so that the
    reward is meaningless. `cut_off`: whether the last reply reached its token limit.
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
    def of(cls, reply_spans: ReplySpans, **fields: Any) -> Self:
        ids, logprobs = np.asarray(reply_spans.ids, "<i4").tobytes(), np.asarray(reply_spans.logprobs, "<f4").tobytes()
        return cls(ids=ids, spans=reply_spans.spans, logprobs=logprobs, **fields)

    @property
    def length(self) -> int:
        """The number of tokens."""
        return len(self.ids) // 4

    @property
    def actions(self) -> int:
        """The number of tokens that the model wrote."""
        return sum(count for _, count in self.spans)

    @property
    def turns(self) -> int:
        return len(self.spans)

    def said(self) -> ReplySpans:
        ids, logprobs = np.frombuffer(self.ids, "<i4").tolist(), np.frombuffer(self.logprobs, "<f4").tolist()
        return ReplySpans(tuple(ids), self.spans, tuple(logprobs))
