"""Measures an unclear comparison again, with intervals that hold over all measurements together.

A comparison is measured up to three times: each measurement adds a series of rounds and judges all rounds so far.
Measuring several times at 99.9% and stopping at the first favourable interval would be wrong more often than once in a
thousand, so the allowed error is divided among the measurements: measurement k of three has the confidence 1 −
α·SPENT[k−1], with α = 0.001. By Bonferroni's inequality the chance that any of the three intervals misses the truth is
at most α·(1/2 + 1/4 + 1/4) = α, even though they share rounds, and whenever one stops. That is the simplest
error-spending function of Lan and DeMets, "Discrete sequential boundaries for clinical trials", Biometrika 70 (1983),
659–663; their own boundaries are narrower, and need the joint distribution of the statistics. The first measurement,
which suffices on a quiet machine, gets half.
"""

from __future__ import annotations

from .statistics import CONFIDENCE, judged_interval

#: Share of the allowed error for each measurement.
SPENT = (0.5, 0.25, 0.25)


def confidence_of(number: int, most: int) -> float:
    """Confidence of the interval at measurement `number` (from 1) of at most `most`; `most` is 1 or the length of
    `SPENT`.
    """
    return CONFIDENCE if most == 1 else 1 - (1 - CONFIDENCE) * SPENT[number - 1]


def interval_at(ratios: list[float], number: int, most: int) -> tuple[float, float, float]:
    """Estimate and interval of all `ratios` up to this measurement; (estimate, 0, inf) if they are too few."""
    return judged_interval(ratios, confidence_of(number, most))
