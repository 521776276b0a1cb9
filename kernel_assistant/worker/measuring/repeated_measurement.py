"""Measures an unclear comparison again, with intervals that hold over all measurements together.

A comparison is measured up to three times: each measurement adds a series of rounds and judges all rounds so far.
Measuring several times at 99.9% and stopping at the first favourable interval would be wrong more often than once in a
thousand, so the allowed error is divided among the measurements: measurement k of three has the confidence 1 −
α·SPENT[k−1], with α = 0.001. By Bonferroni's inequality the chance that any of the three intervals misses the truth is
at most α·(1/2 + 1/4 + 1/4) = α, even though they share rounds, and no matter after which measurement one stops. That is
the simplest error-spending function of Lan and DeMets, "Discrete sequential boundaries for clinical trials", Biometrika
70 (1983), 659–663; their own boundaries are narrower, and need the joint distribution of the statistics. The first
measurement, which suffices on a quiet machine, gets half.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from .statistics import CONFIDENCE, judged_interval

if TYPE_CHECKING:
    from .timing import Series

#: Least effect that counts as a difference (LEAST_EFFECT of records/evaluation.py, which the worker cannot import).
LEAST_EFFECT = 1.02
#: Share of the allowed error for each measurement.
SPENT = (0.5, 0.25, 0.25)


def confidence_of(number: int, most: int) -> float:
    """Returns the confidence of the interval after measurement `number` (from 1), if there are at most `most`
    measurements; `most` is 1 or the length of `SPENT`."""
    return CONFIDENCE if most == 1 else 1 - (1 - CONFIDENCE) * SPENT[number - 1]


def interval_at(ratios: list[float], number: int, most: int) -> tuple[float, float, float]:
    """Returns (estimate, low, high) of the speed-up from all `ratios` up to measurement `number` of `most`; (estimate,
    0, inf) if they are too few."""
    return judged_interval(ratios, confidence_of(number, most))


def interval_of(series: Series, over: str, under: str, number: int = 1, most: int = 1) -> tuple[float, float, float]:
    """Returns (estimate, low, high) for the speed-up of `under` over the baseline `over` after measurement `number` of
    `most`. The interval is widened by the factor 1 + `series.placement` on both sides."""
    estimate, low, high = interval_at(series.ratios(over, under), number, most)
    return estimate, low / (1 + series.placement), high * (1 + series.placement)


def is_unclear(estimate: float, low: float, high: float) -> bool:
    """Whether a speed-up's interval allows both for a gain and for no gain, so that another measurement may decide."""
    faster = low > 1.0 and estimate >= LEAST_EFFECT
    return not faster and high >= LEAST_EFFECT


def until_clear(
    measure: Callable[[], Series],
    over: str,
    under: str,
    until: float | None,
    now: Callable[[], float] = time.monotonic,
) -> tuple[Series, tuple[float, float, float]]:
    """Measures until the interval of the ratio `over`/`under` is clear: at most `len(SPENT)` series, and no further one
    that might end after the time `until` of the clock `now`. Returns all rounds as one series, and its (estimate, low,
    high). With `until` None there is only one series, judged at 99.9%."""
    began = now()
    most = 1 if until is None else len(SPENT)
    series = measure()
    interval = interval_of(series, over, under, 1, most)
    for number in range(2, most + 1):
        longest = (now() - began) / (number - 1)
        if until is None or not is_unclear(*interval) or now() + longest > until:
            break
        series = measure().behind(series)
        interval = interval_of(series, over, under, number, most)
    return series, interval
