"""Divides the time budget for a class among the jobs of its configurations (modules and kinds of inputs that a scan
recorded). Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

#: Seconds that a job needs to open its task, and to write, verify and time a few candidates.
LEAST_SECONDS = 15.0


def divided(budget: float, seconds: Sequence[float]) -> tuple[float, ...]:
    """Divides `budget` (in seconds) among configurations. `seconds` is the time that each takes in the program. Returns
    one budget for each configuration; their sum is `budget`.

    Each configuration gets LEAST_SECONDS, or an equal part of a smaller budget; the rest is divided in proportion to
    `seconds`.
    """
    least = min(LEAST_SECONDS, budget / len(seconds))
    rest = budget - least * len(seconds)
    total = sum(seconds)
    shares = [one / total if total > 0 else 1 / len(seconds) for one in seconds]
    return tuple(least + rest * share for share in shares)
