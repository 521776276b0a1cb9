"""Detects implausible measurements, which are repeated before anything is concluded about the candidate.

Other work on the machine makes correct kernels look implausible: a Triton kernel was once called cheating while another
process used the same GPU, because twice as many calls took only 1.15 times as long. So an implausible measurement is
repeated, at most three times; if all of them are implausible the candidate is `inconclusive`: neither correct nor
cheating.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from ..verifying.verification import IncorrectOutput
from .timing import SWITCH_SECONDS, PlanSubject, Series

Measured = TypeVar("Measured")

MOST_AGAIN = 3
#: Bounds of the ratio of the time per call in long blocks to that in short ones.
GROWTH_BOUNDS = (0.6, 1.6)
#: Blocks by which the judge's clock checks the device's events.
LONG_SECONDS, LONG_BLOCKS, LONG_EXCESS, MOST_LONG_CALLS = 0.05, 3, 0.05, 1 << 14


def until_plausible(measure: Callable[[int], Measured], oddity: Callable[[Measured], str]) -> Measured:
    """Calls `measure(repeat)` for repeat 0, 1, … and returns the first result for which `oddity` returns "" instead of
    a reason why it is implausible. After four implausible ones, raises IncorrectOutput with the outcome
    `inconclusive`."""
    for repeat in range(1 + MOST_AGAIN):
        measured = measure(repeat)
        why = oddity(measured)
        if not why:
            return measured
    raise IncorrectOutput("inconclusive", f"measured {1 + MOST_AGAIN} times, odd each time, last because {why}")


def odd_growth(series: Series) -> str:
    """Returns the reason, as a text, why the candidate's time does not grow with the number of calls as it should; ""
    if it does. Other work only adds time, so the shortest block of each length counts."""
    if not series.growth:
        return ""
    growth = min(long for long, _ in series.growth) / min(short for _, short in series.growth)
    if GROWTH_BOUNDS[0] <= growth <= GROWTH_BOUNDS[1]:
        return ""
    return f"twice the calls took {2 * growth:.2f} times as long: other work disturbs the timing, or calls differ"


def odd_clocks(subject: PlanSubject, seconds: float) -> str:
    """Returns the reason, as a text, why times from the device's events are implausible; "" if the judge's clock
    confirms them.

    `seconds` is the measured time of a call. The candidate runs a few blocks of calls that are so long that the
    overhead at their ends hardly counts. They may use the same inputs more than once, which can only make calls
    shorter."""
    count = min(MOST_LONG_CALLS, math.ceil(LONG_SECONDS / seconds))
    pairs = [subject.both(0, count) for _ in range(LONG_BLOCKS)]
    own, device = min(pairs, key=lambda pair: pair[0] - pair[1])
    if not device or own <= (1 + LONG_EXCESS) * device + SWITCH_SECONDS:
        return ""
    claimed, seen = (each / count * 1e3 for each in (device, own))
    return f"device events say {claimed:.4g} ms a call, the judge's clock {seen:.4g} ms"
