"""Format numbers as they are shown beside code, with about three digits. Pure."""

from __future__ import annotations


def duration(ms: float) -> str:
    """Format milliseconds as a time with a unit: `1.23 ms`, `45.6 µs`, `2.1 s`."""
    for factor, unit in ((1e-3, "s"), (1.0, "ms"), (1e3, "µs")):
        value = ms * factor
        if value >= 1.0 or unit == "µs":
            return f"{value:.3g} {unit}" if value < 999.5 else f"{value:.0f} {unit}"
    raise AssertionError("every duration has a unit")


def share(part: float) -> str:
    """Format a fraction: `38%`, or `<1%` if it is small but not zero."""
    return "<1%" if 0 < part < 0.01 else f"{part:.0%}"


def amount(count: float, unit: str) -> str:
    """Format an amount with decimal prefixes: `3.2 GB`, `950 kB/s`."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= factor:
            return f"{count / factor:.3g} {prefix}{unit}"
    return f"{count:.3g} {unit}"


def interval(bounds: tuple[float, float] | None) -> str:
    """Format a confidence interval: ` (1.8 to 2.3)`; "" for None."""
    return "" if bounds is None else f" ({bounds[0]:.2f} to {bounds[1]:.2f})"
