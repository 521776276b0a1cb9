"""TimedPasses of short blocks, with subjects whose times are given."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from kernel_assistant.worker.device_lock import DeviceLock
from kernel_assistant.worker.measuring import timing
from kernel_assistant.worker.measuring.passes import MOST_PASSES, Block, TimedPasses, interleave, passes_of
from kernel_assistant.worker.measuring.statistics import bootstrapped, faster_half
from kernel_assistant.worker.measuring.timing import Series

SETS = 64
CALL_SECONDS = 5e-4


class Ran(NamedTuple):
    name: str
    first: int
    count: int


class Subject:
    """A subject whose call takes `seconds()`. `ran` gets each block."""

    def __init__(self, name: str, ran: list[Ran], seconds: Callable[[], float]) -> None:
        self.name, self._ran, self._seconds = name, ran, seconds

    def run(self, first: int, count: int) -> float:
        self._ran.append(Ran(self.name, first, count))
        return count * self._seconds()

    def wake(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "PAUSE_SECONDS", 0.0)


def test_one_block_of_each_side_in_a_pass_on_sets_that_were_prepared() -> None:
    ran: list[Ran] = []
    prepared: list[tuple[Block, Block]] = []
    mine, plain = (Subject(name, ran, lambda: CALL_SECONDS) for name in ("candidate", "eager"))
    passes = TimedPasses([mine, plain], SETS, prepare=lambda whole, block: prepared.append((whole, block)))
    firsts = set()
    for _ in range(20):
        ran.clear()
        prepared.clear()
        per_call, block = passes.one()
        assert per_call == {"candidate": pytest.approx(CALL_SECONDS), "eager": pytest.approx(CALL_SECONDS)}
        assert sorted(one.name for one in ran) == ["candidate", "eager"]
        (whole, marked), lengths = prepared[0], passes.lengths
        assert whole == (ran[0].first, sum(lengths.values())) and marked == block
        assert Ran("candidate", *block) in ran
        firsts.add(ran[0].name)
    assert firsts == {"candidate", "eager"}


def _interleaved(rounds: int, seconds: Callable[[], float], **settings: Any) -> Series:
    """The series of a candidate and its twin, whose calls take `seconds()`."""
    mine, twin = (Subject(name, [], seconds) for name in ("candidate", "twin"))
    return interleave(mine, [twin], sets=SETS, rounds=rounds, most_seconds=10.0, lock=DeviceLock(), **settings)


def test_blocks_that_other_work_disturbs_do_not_count() -> None:
    chance = random.Random(3)

    def disturbed() -> float:
        return CALL_SECONDS * (3.0 if chance.random() < 0.2 else 1.0)

    series = _interleaved(12, disturbed)
    ratios = sorted(series.ratios("twin", "candidate"))
    assert ratios[2] == ratios[-3] == pytest.approx(1.0)
    assert len(series.rounds) == 12 and len(series.growth) == 4


def test_a_share_of_the_blocks_is_compared_and_each_is_checked() -> None:
    checked: list[bool] = []
    _interleaved(28, lambda: CALL_SECONDS, checked=lambda block, compared: checked.append(compared))
    assert len(checked) == 28 * MOST_PASSES + 10
    assert 10 + 8 < sum(checked) < 10 + 60


def test_what_takes_long_is_repeated_less() -> None:
    assert [passes_of(seconds) for seconds in (0.01, 0.04, 0.1, 2.0)] == [MOST_PASSES, 3, 1, 1]


def test_the_faster_half_and_its_error() -> None:
    assert faster_half([5.0, 1.0, 2.0]) == 1.5
    assert faster_half([4.0, 2.0]) == 2.0
    assert bootstrapped([1.0], max) == 0.0
    chance = random.Random(5)
    rows = [chance.gauss(10.0, 1.0) for _ in range(400)]
    assert bootstrapped(rows, lambda some: sum(some) / len(some)) == pytest.approx(0.1 / 20, rel=0.3)
