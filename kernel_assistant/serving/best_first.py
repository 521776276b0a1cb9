"""Different answers of one model to one prompt, the likeliest beginnings first. Pure; nothing is drawn at random.

The first answer is the greedy one. Wherever an answer took a token, the tokens that it did not take are beginnings of
others; each next answer goes on greedily from the likeliest beginning that no answer has had.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

#: Tokens that the model says of each place, with their log-probabilities.
Others = Sequence[tuple[int, float]]
#: As many of each place are looked at. A beginning at the fourth has less than a fifth of the probability of the first.
WIDTH = 4


@dataclass(frozen=True)
class Beginning:
    """`logprobs` are of `ids`, the model's own; `cost` is their negated sum."""

    cost: float = 0.0
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()


#: Nothing yet.
START = Beginning()


class BestFirst:
    """`next`, then `add` of what came of it, in turns. Not thread-safe."""

    def __init__(self) -> None:
        self._answers: list[tuple[tuple[int, ...], tuple[float, ...]]] = [((), ())]
        #: Cost, answer, place in it, the token that it did not take there, and its log-probability.
        self._open: list[tuple[float, int, int, int | None, float]] = [(0.0, 0, 0, None, 0.0)]

    def next(self) -> Beginning | None:
        """None where every beginning has been taken."""
        if not self._open:
            return None
        cost, answer, place, token, logprob = heapq.heappop(self._open)
        if token is None:
            return START
        ids, logprobs = self._answers[answer]
        return Beginning(cost, (*ids[:place], token), (*logprobs[:place], logprob))

    def add(self, begun: Beginning, ids: Sequence[int], logprobs: Sequence[float], others: Sequence[Others]) -> None:
        """`ids` is the whole answer with the beginning, `logprobs` and `others` are of all its places; of those of the
        beginning `others` is not looked at."""
        answer, cost = len(self._answers), begun.cost
        self._answers.append((tuple(ids), tuple(logprobs)))
        for place in range(len(begun.ids), len(ids)):
            for token, logprob in others[place]:
                if token != ids[place]:
                    heapq.heappush(self._open, (cost - logprob, answer, place, token, logprob))
            cost -= logprobs[place]
