"""Figures in words, as they stand beside code: three digits, no more than was measured. Pure."""

from __future__ import annotations


def duration(ms: float) -> str:
    """`1.23 ms`, `45.6 µs`, `2.1 s`."""
    for factor, unit in ((1e-3, "s"), (1.0, "ms"), (1e3, "µs")):
        value = ms * factor
        if value >= 1.0 or unit == "µs":
            return f"{value:.3g} {unit}" if value < 999.5 else f"{value:.0f} {unit}"
    raise AssertionError("every duration has a unit")


def share(part: float) -> str:
    """`38%`; `<1%` rather than a zero that is none."""
    return "<1%" if 0 < part < 0.01 else f"{part:.0%}"


def amount(count: float, unit: str) -> str:
    """`3.2 GB`, `950 kB/s`: with the prefixes of powers of ten."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= factor:
            return f"{count / factor:.3g} {prefix}{unit}"
    return f"{count:.3g} {unit}"


def interval(found: tuple[float, float] | None) -> str:
    """` (1.8 to 2.3)`, "" where there is none."""
    return "" if found is None else f" ({found[0]:.2f} to {found[1]:.2f})"
