"""Finds different answers of one model to one prompt, the likeliest beginnings first. This module is pure and uses no
random numbers.

The first answer is the greedy one. At each position of an answer, each likely token that was not taken gives the
beginning of another answer: the tokens before it, and the token itself. The next answer continues greedily from the
likeliest beginning that is not used yet.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

#: The likeliest tokens at one position, with their log-probabilities.
Others = Sequence[tuple[int, float]]
#: The number of tokens considered at each position. The fourth has less than a fifth of the probability of the first.
WIDTH = 4


@dataclass(frozen=True)
class PartialReply:
    """The beginning of a reply. `logprobs` are the model's log-probabilities of `ids`; `cost` is their negated sum."""

    cost: float = 0.0
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()


#: The empty beginning.
START = PartialReply()


class BestFirstSearch:
    """The search for different answers. The caller alternates: `next` returns a beginning, and `add` gets the answer
    that continues it. Not thread-safe."""

    def __init__(self) -> None:
        self._answers: list[tuple[tuple[int, ...], tuple[float, ...]]] = [((), ())]
        #: Heap of (cost, answer, position, token not taken there, its log-probability).
        self._open: list[tuple[float, int, int, int | None, float]] = [(0.0, 0, 0, None, 0.0)]

    def next(self) -> PartialReply | None:
        """Returns the likeliest beginning that was not used yet; None if there is none."""
        if not self._open:
            return None
        cost, answer, position, token, logprob = heapq.heappop(self._open)
        if token is None:
            return START
        ids, logprobs = self._answers[answer]
        return PartialReply(cost, (*ids[:position], token), (*logprobs[:position], logprob))

    def add(self, begun: PartialReply, ids: Sequence[int], logprobs: Sequence[float], others: Sequence[Others]) -> None:
        """Adds an answer that begins with `begun`. `ids` is the whole answer with its beginning; `logprobs` and
        `others` have one item for each position. An item of `others` lists likely tokens as (id, log-probability); it
        is ignored in the beginning."""
        answer, cost = len(self._answers), begun.cost
        self._answers.append((tuple(ids), tuple(logprobs)))
        for position in range(len(begun.ids), len(ids)):
            for token, logprob in others[position]:
                if token != ids[position]:
                    heapq.heappush(self._open, (cost - logprob, answer, position, token, logprob))
            cost -= logprobs[position]
