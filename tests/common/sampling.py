"""Tests with many cases, each of which has to be compiled: the gate runs a fixed part of them."""

from __future__ import annotations

from collections import Counter

import pytest


def mark_beyond_sample(items: list[pytest.Item]) -> None:
    """Marks the cases of tests marked `sampled(every)` as `builds`, but for the first case of each test and each
    `every`th behind it. A case with the marker `gpu` stays as it is.
    """
    seen = Counter[str]()
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if sampled is None or item.get_closest_marker("gpu"):
            continue
        test = item.nodeid.partition("[")[0]
        if seen[test] % sampled.args[0]:
            item.add_marker(pytest.mark.builds)
        seen[test] += 1
