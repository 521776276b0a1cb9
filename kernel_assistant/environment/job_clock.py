"""Divides the time of one job. The budget covers the whole job, from opening the module to the last free win (a
speed-up that needs no kernel).

Opening the module may take any part of the budget. Of the time that is left after that, a part is reserved for
evaluating the best candidate in the full tier, and `free` seconds for the free wins, which come last and may use all
the time that is left. An evaluation in the full tier is stopped only at the job's limit, 1.2 times the budget, because
its result is worth more than a punctual end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kernel_assistant.errors import OutOfTime

#: A job is stopped after this many times its budget.
LATEST = 1.2
#: Share of the budget that is reserved for the full tier, and the most seconds; where the full tier needs more, at most
#: half of the budget.
VERIFYING, MOST_VERIFYING = 0.25, 0.5
MOST_VERIFYING_SECONDS = 60.0


@dataclass
class JobClock:
    """Measures the time of a job from the construction of this object on. `budget` and `free` (the part reserved for
    free wins) are in seconds; `now` is the clock to use. Without a budget there is no limit."""

    budget: float = float("inf")
    free: float = 0.0
    now: Callable[[], float] = time.monotonic
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.now()

    def left(self) -> float:
        """Returns the seconds left of the budget; negative after its end."""
        return self.budget - (self.now() - self.began)

    def until_limit(self) -> float:
        """Returns the seconds until the job is stopped (1.2 times its budget); negative after that."""
        return LATEST * self.budget - (self.now() - self.began)

    def before_free(self) -> float:
        """Returns the seconds of the budget that are left before the `free` seconds reserved for the free wins
        begin."""
        return self.left() - self.free

    def search_seconds(self, full: float = 0.0) -> float:
        """Returns how many seconds a search may take that begins now. `full` is the time in seconds of an evaluation in
        the full tier, 0 if unknown."""
        reserved = min(max(VERIFYING * self.budget, full), MOST_VERIFYING * self.budget, MOST_VERIFYING_SECONDS)
        return max(0.0, self.before_free() - reserved)

    def check(self) -> None:
        """Raises OutOfTime if the job's limit has passed."""
        if self.until_limit() <= 0:
            raise OutOfTime(f"the budget of {self.budget:.0f} s is used up", "give it a longer --budget")


class Stopping(threading.Event):
    """An event that stops work in other threads of a job, such as builds. `is_set` is True once the event has been set,
    the user has cancelled, or the job's limit is reached. `wait` returns early only if the event itself is set."""

    def __init__(self, cancel: threading.Event, until_limit: Callable[[], float]) -> None:
        super().__init__()
        self._cancel, self._until_limit = cancel, until_limit

    def is_set(self) -> bool:
        return super().is_set() or self._cancel.is_set() or self._until_limit() <= 0
