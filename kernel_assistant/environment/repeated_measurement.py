"""Repeats the measurement of a candidate in the full tier until it is clear whether the candidate is faster than the
baselines (eager, torch.compile)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernel_assistant.events import AnyEvent, Progress
from kernel_assistant.records import Outcome, Timing
from kernel_assistant.records.codec import from_builtins

Answer = dict[str, Any]
#: The number of measurements among which worker/measuring/repeated_measurement.py divides the error probability.
MOST_LOOKS = 3


@dataclass(frozen=True)
class RepeatedMeasurement:
    """Limits for repeating a measurement: at most `most` measurements in all (1 or MOST_LOOKS), and none that would
    probably end after the time `until` (of `time.monotonic`)."""

    most: int
    until: float = math.inf

    def until_clear(self, profile: Callable[[tuple[int, int]], Answer], emit: Callable[[AnyEvent], None]) -> Answer:
        """Calls `profile((number, most))` with number 1, 2, ... until the comparison with the baselines is clear or a
        limit is reached. Returns the last answer.

        If other work on the machine disturbs a repetition, the answer before it is returned.
        """
        began = time.monotonic()
        answer = profile((1, self.most))
        for number in range(2, self.most + 1):
            longest = (time.monotonic() - began) / (number - 1)
            if _is_clear(answer) or time.monotonic() + longest > self.until:
                break
            message = f"not clear yet whether it is a gain: measuring on, look {number} of up to {self.most}"
            emit(Progress(phase="confirm", message=message))
            latest = profile((number, self.most))
            if latest["outcome"] == Outcome.inconclusive.value:
                break
            answer = latest
        return answer


ONE_MEASUREMENT = RepeatedMeasurement(1)


def _is_clear(answer: Answer) -> bool:
    """Whether the judge's answer says clearly if the candidate is faster than the baselines, so that no repetition is
    needed. True for a failed candidate, too, because it has no timing."""
    timing = answer.get("timing")
    return not timing or from_builtins(timing, Timing).is_clear
