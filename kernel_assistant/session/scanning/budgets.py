"""Divides the budget of a class among the jobs of its configurations. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

#: Seconds that a job needs to open its task, and to write, verify and time a few candidates.
LEAST_SECONDS = 15.0


def divided(budget: float, seconds: Sequence[float]) -> tuple[float, ...]:
    """Returns one budget for each configuration, by the time (`seconds`) that it takes of the program; their sum is
    `budget`.

    Each gets LEAST_SECONDS before the rest is divided, or an equal part of a budget that is too short for that.
    """
    least = min(LEAST_SECONDS, budget / len(seconds))
    rest = budget - least * len(seconds)
    total = sum(seconds)
    shares = [one / total if total > 0 else 1 / len(seconds) for one in seconds]
    return tuple(least + rest * share for share in shares)
