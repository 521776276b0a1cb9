"""Compares two timings that were measured in pairs, robust to outliers. Pure functions on plain floats."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

CONFIDENCE = 0.999
UNEVEN = 0.5
RESAMPLES = 60

Row = TypeVar("Row")


def paired_interval(ratios: list[float], confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """Returns the Hodges–Lehmann estimate of the median ratio and its exact signed-rank confidence interval, as
    (estimate, low, high).

    `ratios` are paired and positive (baseline's time over candidate's time). Works on logarithms, so the interval of
    the inverse ratio is the inverse interval. Fewer pairs than the confidence needs (11 for 99.9%) give (estimate, 0,
    inf). Source: Hollander, Wolfe, Chicken, Nonparametric Statistical Methods, 3rd ed., sections 3.2 and 3.3."""
    logs = [math.log(ratio) for ratio in ratios]
    walsh = sorted((logs[i] + logs[j]) / 2 for i in range(len(logs)) for j in range(i, len(logs)))
    estimate = math.exp(median(walsh))
    rank = _critical_rank(len(logs), 1 - confidence)
    if rank == 0:
        return estimate, 0.0, math.inf
    return estimate, math.exp(walsh[rank - 1]), math.exp(walsh[len(walsh) - rank])


def judged_interval(ratios: list[float], confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """Returns `paired_interval` (estimate, low, high), widened on both sides by half the relative spread of the ratios.

    Disturbances also affect the two sides unequally, which no number of rounds reveals: on a GPU that another process
    used half of the time, the kernel that followed the judge's own work came out 1% slower than its twin, at a spread
    of 2 to 7%. On a quiet machine the spread is 1% (CPU) or 0.2% (CUDA)."""
    estimate, low, high = paired_interval(ratios, confidence)
    allowance = math.exp(UNEVEN * relative_spread(ratios))
    return estimate, low / allowance, high * allowance


@lru_cache(maxsize=64)
def _critical_rank(count: int, alpha: float) -> int:
    """Returns the largest k with P(T < k) ≤ alpha/2 for the Wilcoxon signed-rank statistic T of `count` pairs, 0 if
    there is none."""
    top = count * (count + 1) // 2
    ways = [1] + [0] * top
    for rank in range(1, count + 1):
        for total in range(top, rank - 1, -1):
            ways[total] += ways[total - rank]
    below, k = 0, 0
    while k <= top and (below + ways[k]) / 2**count <= alpha / 2:
        below += ways[k]
        k += 1
    return k


def median(values: list[float]) -> float:
    """Returns the median of a non-empty list."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def faster_half(values: list[float]) -> float:
    """Returns the mean of the smaller half of a non-empty list of times; of an odd number of values, the middle one is
    included."""
    ordered = sorted(values)[: (len(values) + 1) // 2]
    return sum(ordered) / len(ordered)


def bootstrapped(rows: list[Row], estimate: Callable[[list[Row]], float]) -> float:
    """Returns the standard error of the logarithm of `estimate(rows)` by Efron's bootstrap, with the same random draws
    each time; 0 for fewer than two rows."""
    if len(rows) < 2:
        return 0.0
    chance = random.Random(0)
    logs = [math.log(estimate(chance.choices(rows, k=len(rows)))) for _ in range(RESAMPLES)]
    return statistics.stdev(logs)


def spread(values: list[float]) -> float:
    """Returns the standard deviation divided by the mean, for a few values without outliers; 0 for fewer than two
    values."""
    return statistics.stdev(values) / statistics.fmean(values) if len(values) > 1 else 0.0


def relative_spread(values: list[float]) -> float:
    """Returns the median absolute deviation divided by the median, scaled so that it estimates the relative standard
    deviation of a normal distribution; 0 if the median is 0."""
    centre = median(values)
    return 1.4826 * median([abs(value - centre) for value in values]) / centre if centre else 0.0
