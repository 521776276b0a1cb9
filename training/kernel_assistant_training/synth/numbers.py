"""Draws numbers like those that people write in programs."""

from __future__ import annotations

from random import Random

_EPS = (1e-5, 1e-6, 1e-5, 1e-12, 1e-8, 1e-3, 1e-7, 1e-4, 1e-10, 2e-5, 5e-6, 1e-2)
_SCALES = (0.5, 2.0, 0.1, 0.125, 10.0, 0.25, 3.0, 0.01, 1.5, 0.7, 0.08838834764831845, 0.2, 1.702, 4.0, -1.0, -0.5)
_SHIFTS = (1.0, 0.5, -1.0, 1, 2, 3.0, 0.1, -0.5, 0.25, 1e-3, -2.0, 6.0, 0.044715)
_SLOPES = (0.01, 0.1, 0.2, 0.05, 0.3, 0.25, 0.02, 0.15)
_ALPHAS = (1.0, 0.5, 2.0, 1.5, 0.8, 0.1, 1.2)


def eps(random: Random) -> float:
    if random.random() < 0.85:
        return random.choice(_EPS)
    return float(f"{random.uniform(1, 9):.1f}e{random.randint(-9, -3)}")


def half_eps(random: Random, dtype: str) -> float:
    """Returns an epsilon that is not rounded to zero in float16, for a sum whose other term may be 0."""
    return random.choice((1e-3, 1e-2, 1e-4)) if dtype == "f16" else eps(random)


def scale(random: Random) -> float:
    return random.choice(_SCALES) if random.random() < 0.7 else _rounded(random, 0.05, 4.0)


def shift(random: Random) -> float:
    return random.choice(_SHIFTS) if random.random() < 0.7 else _rounded(random, -3.0, 3.0)


def slope(random: Random) -> float:
    return random.choice(_SLOPES) if random.random() < 0.7 else _rounded(random, 0.01, 0.5)


def alpha(random: Random) -> float:
    return random.choice(_ALPHAS) if random.random() < 0.7 else _rounded(random, 0.2, 3.0)


def limits(random: Random) -> tuple[float, float]:
    """Returns a lower and an upper bound for a clamp."""
    low = random.choice((0.0, -1.0, -0.5, 0.0, -2.0, 0.1, -3.0))
    return low, round(low + random.choice((1.0, 2.0, 6.0, 0.5, 1.5, 4.0)), 2)


def _rounded(random: Random, low: float, high: float) -> float:
    return round(random.uniform(low, high), random.choice((1, 2, 2, 3))) or low
