"""What looks odd in a measurement, and is measured again before anything is said of the candidate.

Other work on the machine makes honest kernels look odd: one of Triton's was called cheating beside a process that used
the same GPU, because twice the calls took 1.15 times as long. So an odd measurement is made again, at most three times;
if all of them are odd the candidate is `inconclusive`: neither correct nor cheating.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from .timing import SWITCH_SECONDS, PlanSubject, Series
from .verification import Wrong

Measured = TypeVar("Measured")

MOST_AGAIN = 3
#: Time per call of long blocks over that of short ones.
GROWTH_BOUNDS = (0.6, 1.6)
#: Blocks in which the judge's clock confirms the device's events.
LONG_SECONDS, LONG_BLOCKS, LONG_EXCESS, MOST_LONG_CALLS = 0.05, 3, 0.05, 1 << 14


def until_plausible(measure: Callable[[], Measured], oddity: Callable[[Measured], str]) -> Measured:
    """What `measure` gives once `oddity` has nothing to say of it. Raises Wrong `inconclusive` where it always has."""
    for _ in range(1 + MOST_AGAIN):
        measured = measure()
        why = oddity(measured)
        if not why:
            return measured
    raise Wrong("inconclusive", f"measured {1 + MOST_AGAIN} times, odd each time, last because {why}")


def odd_growth(series: Series) -> str:
    """Why the candidate's time does not fit the number of calls; empty where it does. Other work only ever adds time,
    so the shortest block of each kind counts."""
    if not series.growth:
        return ""
    growth = min(long for long, _ in series.growth) / min(short for _, short in series.growth)
    if GROWTH_BOUNDS[0] <= growth <= GROWTH_BOUNDS[1]:
        return ""
    return f"twice the calls took {2 * growth:.2f} times as long: other work disturbs the timing, or calls differ"


def odd_clocks(subject: PlanSubject, seconds: float) -> str:
    """Why the device's events cannot be believed; empty where the judge's clock confirms them.

    In long blocks what a block costs at its ends hardly counts. The sets may come more than once: that only makes calls
    shorter. `seconds` is what a call was found to take.
    """
    count = min(MOST_LONG_CALLS, math.ceil(LONG_SECONDS / seconds))
    pairs = [subject.both(0, count) for _ in range(LONG_BLOCKS)]
    own, device = min(pairs, key=lambda pair: pair[0] - pair[1])
    if not device or own <= (1 + LONG_EXCESS) * device + SWITCH_SECONDS:
        return ""
    claimed, seen = (each / count * 1e3 for each in (device, own))
    return f"device events say {claimed:.4g} ms a call, the judge's clock {seen:.4g} ms"
