"""Decides which finalists (the fastest candidates of the search) are confirmed, and how long confirmation may take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kernel_assistant.records import Evaluation

#: Confirmation may take as long as the search took, plus this.
CONFIRM_SECONDS = 10.0


def within_reach(first: Evaluation) -> bool:
    """Whether another finalist may still be an improvement. `first` is the evaluation, in the full tier, of the fastest
    candidate of the search.

    The search cannot distinguish the times of the finalists. So the others are not tried if the whole interval of the
    speed-up in `first` lies below 1 for one of the baselines, eager PyTorch or torch.compile.
    """
    timing = first.timing
    if timing is None:
        return True
    intervals = (timing.speedup_vs_compile_ci, timing.speedup_vs_eager_ci)
    return all(interval is None or interval[1] >= 1.0 for interval in intervals)


class ConfirmationBudget:
    """A limit of `seconds`, from now on, for evaluations in the full tier. `has_room(n)` says whether n more
    evaluations fit, if each takes as long as the longest one so far."""

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._ends = now, now() + seconds
        #: Seconds of the longest evaluation until now.
        self.longest = 0.0

    def has_room(self, evaluations: int) -> bool:
        return self._now() + evaluations * self.longest <= self._ends

    @contextmanager
    def one(self) -> Iterator[None]:
        """Measures how long the one evaluation in the `with` block takes, for later estimates."""
        began = self._now()
        yield
        self.longest = max(self.longest, self._now() - began)
