"""How long confirming goes on: which finalists deserve it, and what time there is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from kernel_assistant.records import Evaluation

#: On top of what the search took.
CONFIRM_SECONDS = 10.0


def within_reach(first: Evaluation) -> bool:
    """Whether another finalist may be an improvement, where the one that the search saw as the fastest came to `first`.

    They differ by less than the search can tell: once that one is slower than a baseline with its whole interval, the
    others are not tried.
    """
    timing = first.timing
    if timing is None:
        return True
    intervals = (timing.speedup_vs_compile_ci, timing.speedup_vs_eager_ci)
    return all(interval is None or interval[1] >= 1.0 for interval in intervals)


class Allowance:
    """Seconds for evaluations in full. How long one takes is known when the first has ended."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds
        self._longest = 0.0

    def has_room(self, evaluations: int) -> bool:
        return time.monotonic() + evaluations * self._longest <= self._ends

    @contextmanager
    def one(self) -> Iterator[None]:
        """Around one evaluation."""
        began = time.monotonic()
        yield
        self._longest = max(self._longest, time.monotonic() - began)
