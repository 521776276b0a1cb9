"""Repeated measurements: a kernel compared with itself stays equal, and a small gain is found more often."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial

import pytest

from kernel_assistant.environment.repeated_measurement import MOST_LOOKS, Answer, RepeatedMeasurement
from kernel_assistant.events import Progress
from kernel_assistant.records import Gain, Outcome, Timing
from kernel_assistant.records.codec import from_builtins
from kernel_assistant.worker.measuring.repeated_measurement import (
    SPENT,
    confidence_of,
    interval_at,
    is_unclear,
    until_clear,
)
from kernel_assistant.worker.measuring.statistics import CONFIDENCE, paired_interval
from kernel_assistant.worker.measuring.timing import LEAST_ROUNDS, Round, Series

ROUNDS = 28
Noise = Callable[[], float]


def quiet(chance: random.Random) -> Noise:
    return lambda: chance.gauss(0, 0.02)


def shared(chance: random.Random) -> Noise:
    """Noise of neighbours: every round varies by 6%, and one round in ten is disturbed, on either side."""
    return lambda: chance.gauss(0, 0.06) + (chance.gauss(0, 0.3) if chance.random() < 0.1 else 0.0)


class Measured:
    """A candidate with a known gain, as the judge would measure it: each repetition adds rounds to the earlier ones."""

    def __init__(self, true: float, noise: Noise) -> None:
        self.true, self._noise, self.looks = true, noise, 0
        self._ratios: list[float] = []

    def profile(self, look: tuple[int, int]) -> Answer:
        self.looks += 1
        self._ratios += [self.true * math.exp(self._noise()) for _ in range(ROUNDS)]
        speedup, low, high = interval_at(self._ratios, *look)
        timing = {"candidate_ms": 1.0, "eager_ms": speedup, "speedup_vs_eager": speedup}
        return {"outcome": "correct", "timing": {**timing, "speedup_vs_eager_ci": [low, high]}}


def verdict(measured: Measured, looks: int) -> Gain:
    answer = RepeatedMeasurement(looks).until_clear(measured.profile, lambda event: None)
    return from_builtins(answer["timing"], Timing).vs_eager


@pytest.mark.parametrize("noise", [quiet, shared])
def test_same_against_same_is_called_different_at_most_twice_in_200_over_all_looks(noise):
    chance = random.Random(20251125)
    verdicts = [verdict(Measured(1.0, noise(chance)), MOST_LOOKS) for _ in range(200)]
    assert sum(one in (Gain.faster, Gain.slower) for one in verdicts) <= 2


def test_a_small_gain_is_found_more_often_and_never_called_none():
    verdicts = list[list[Gain]]()
    for looks in (1, MOST_LOOKS):
        noise = partial(random.Random(7).gauss, 0, 0.035)
        verdicts.append([verdict(Measured(1.05, noise), looks) for _ in range(100)])
    once, again = verdicts
    assert again.count(Gain.faster) > once.count(Gain.faster) + 10
    assert Gain.no_gain not in again and Gain.slower not in again


def test_what_is_clear_is_looked_at_once_and_what_stays_unclear_three_times():
    for measured, gain, looks in (
        (Measured(1.5, quiet(random.Random(1))), Gain.faster, 1),
        (Measured(1.02, shared(random.Random(1))), Gain.unclear, MOST_LOOKS),
        (Measured(0.99, lambda: 0.0), Gain.no_gain, 1),
    ):
        assert (verdict(measured, MOST_LOOKS), measured.looks) == (gain, looks)


def test_no_look_is_begun_that_ends_too_late_and_each_is_told():
    told = list[object]()
    late = Measured(1.02, shared(random.Random(1)))
    RepeatedMeasurement(MOST_LOOKS, until=0.0).until_clear(late.profile, lambda event: None)
    assert late.looks == 1
    RepeatedMeasurement(MOST_LOOKS).until_clear(late.profile, told.append)
    messages = [event.message for event in told if isinstance(event, Progress)]
    assert [words.rpartition(", ")[2] for words in messages] == ["look 2 of up to 3", "look 3 of up to 3"]


def test_what_other_work_disturbs_later_leaves_the_first_look_standing():
    measured = Measured(1.02, shared(random.Random(1)))
    answers = iter([measured.profile((1, MOST_LOOKS)), {"outcome": Outcome.inconclusive.value, "message": "odd"}])
    found = RepeatedMeasurement(MOST_LOOKS).until_clear(lambda look: next(answers), lambda event: None)
    assert found["outcome"] == "correct"
    wrong = {"outcome": Outcome.cheating.value, "message": "other values while timed"}
    answers = iter([measured.profile((1, MOST_LOOKS)), wrong])
    assert RepeatedMeasurement(MOST_LOOKS).until_clear(lambda look: next(answers), lambda event: None) is wrong


def test_the_looks_spend_no_more_than_one_may():
    spent = [1 - confidence_of(look, MOST_LOOKS) for look in range(1, MOST_LOOKS + 1)]
    assert math.fsum(spent) == pytest.approx(1 - CONFIDENCE) and math.fsum(SPENT) == 1.0
    assert len(SPENT) == MOST_LOOKS
    assert confidence_of(1, 1) == CONFIDENCE
    # A series that ends early has enough rounds for the first look.
    assert paired_interval([1.1] * LEAST_ROUNDS, confidence_of(1, MOST_LOOKS))[1] > 0.0


def test_the_truth_is_in_all_three_intervals_as_often_as_they_say():
    chance, missed = random.Random(99), 0
    for _ in range(1000):
        ratios: list[float] = []
        held = True
        for look in range(1, MOST_LOOKS + 1):
            ratios += [1.05 * math.exp(chance.gauss(0, 0.03)) for _ in range(LEAST_ROUNDS)]
            _, low, high = paired_interval(ratios, confidence_of(look, MOST_LOOKS))
            held &= low <= 1.05 <= high
        missed += not held
    # 0.1% of 1000 is 1, with a standard deviation of 1.
    assert missed <= 5


@pytest.mark.parametrize(
    ("until", "seconds", "looks"),
    [(None, 1.0, 1), (float("-inf"), 1.0, 1), (10.0, 1.0, 3), (2.5, 1.0, 2), (10.0, 6.0, 1)],
)
def test_series_of_an_edited_file_are_repeated_as_looks_are(until, seconds, looks):
    """On a clock that each series moves: none begins that would end too late, and all rounds are judged together."""
    now, begun = [0.0], []

    def measure() -> Series:
        now[0] += seconds
        begun.append(now[0])
        pairs = [(1.0, 1.02), (1.0, 1.1), (1.1, 1.0)] * 6
        return Series([Round({"applied": mine, "original": theirs}) for mine, theirs in pairs], [], 18)

    series, found = until_clear(measure, "original", "applied", until, lambda: now[0])
    assert len(begun) == looks and len(series.rounds) == 18 * looks
    assert found == interval_at(series.ratios("original", "applied"), looks, 1 if until is None else MOST_LOOKS)
    assert is_unclear(*found)


def test_a_clear_series_of_an_edited_file_is_not_repeated():
    rounds = [Round({"applied": 1.0, "original": 2.0})] * 18
    series, (estimate, low, _) = until_clear(lambda: Series(rounds, [], 18), "original", "applied", 1e9, lambda: 0.0)
    assert len(series.rounds) == 18 and estimate == low == 2.0


def test_rounds_of_two_looks_are_judged_as_one_series():
    first, second = (Series([Round({"candidate": 1.0, "compile": ms})], [(1.0, 1.0)], 3) for ms in (2.0, 4.0))
    both = second.behind(first)
    assert (both.ratios("compile", "candidate"), both.calls, len(both.growth)) == ([2.0, 4.0], 6, 2)
