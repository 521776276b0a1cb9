"""Tests that times reported by a free-form candidate's process are not used."""

from __future__ import annotations

import pytest

from kernel_assistant.worker.freeform.profiling import HostClockSubject


class Claiming:
    """A candidate whose process reports that the device was hardly busy."""

    name = "candidate"

    def both(self, first: int, count: int) -> tuple[float, float]:
        return 0.25 * count, 1e-9


def test_only_the_judges_clock_counts() -> None:
    subject = HostClockSubject(Claiming(), copy_seconds=0.05)
    assert subject.run(3, 4) == pytest.approx(0.8)
    assert subject.both(0, 2) == (0.5, 0.0)
