"""The part of the cache size named by the system that a machine really gets."""

from __future__ import annotations

import pytest

from kernel_assistant.worker.measuring.calibrate import LEAST_CACHE, usable_cache


@pytest.mark.parametrize("named", [1 << 20, LEAST_CACHE])
def test_a_small_cache_is_believed(named: int) -> None:
    assert usable_cache(named) == named


def test_of_a_large_cache_no_more_than_is_named_and_no_less_than_is_looked_for() -> None:
    assert LEAST_CACHE <= usable_cache(96 << 20) <= 96 << 20
