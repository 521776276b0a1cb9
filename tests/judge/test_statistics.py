"""Tests the paired interval against published tables, against its own inverse, and by simulation."""

from __future__ import annotations

import math
import random

import pytest

from kernel_assistant.worker.measuring.kernel_share import share_calls
from kernel_assistant.worker.measuring.statistics import _critical_rank as critical_rank
from kernel_assistant.worker.measuring.statistics import judged_interval, median, paired_interval, relative_spread
from kernel_assistant.worker.measuring.task_sets import room_for_sets

#: Largest T at which a two-sided test rejects: Wilcoxon and Wilcox (1964), table of the signed-rank statistic.
#: None: no value rejects. The interval ends at the Walsh average of rank T + 1.
PUBLISHED = {
    0.01: {7: None, 8: 0, 9: 1, 10: 3, 11: 5, 12: 7, 13: 9, 14: 12, 15: 15, 16: 19, 20: 37, 25: 68, 30: 109},
    0.05: {5: None, 6: 0, 7: 2, 8: 3, 9: 5, 10: 8, 12: 13, 15: 25, 20: 52, 25: 89},
}


@pytest.mark.parametrize(
    ("alpha", "count", "rejects"), [(alpha, n, t) for alpha, rows in PUBLISHED.items() for n, t in rows.items()]
)
def test_ranks_are_those_of_the_published_table(alpha, count, rejects):
    assert critical_rank(count, alpha) == (0 if rejects is None else rejects + 1)


def test_interval_of_inverse_ratios_is_the_inverse_interval():
    ratios = [1.1, 0.98, 1.07, 1.2, 1.01, 1.03, 0.91, 1.5, 1.08, 1.02, 1.04, 0.99]
    estimate, low, high = paired_interval(ratios)
    inverse, inverse_low, inverse_high = paired_interval([1 / ratio for ratio in ratios])
    assert (inverse, inverse_low, inverse_high) == pytest.approx((1 / estimate, 1 / high, 1 / low))
    assert low <= estimate <= high


def test_too_few_pairs_say_nothing_and_eleven_give_their_own_range():
    assert paired_interval([2.0] * 10) == (pytest.approx(2.0), 0.0, math.inf)
    assert paired_interval([1.0 + index / 10 for index in range(11)])[1:] == pytest.approx((1.0, 2.0))


def test_one_wild_round_moves_the_end_on_its_side_only():
    steady = [1.10, 1.11, 1.09, 1.10, 1.12, 1.10, 1.08, 1.11, 1.10, 1.09, 1.10, 1.11, 1.10, 1.10]
    estimate, low, high = paired_interval(steady)
    wild = paired_interval([*steady[:-1], 40.0])
    assert wild[0] == pytest.approx(estimate, rel=0.01)
    assert wild[1] == pytest.approx(low, rel=0.01)
    assert wild[2] > high


def test_what_varies_widens_the_interval_on_both_sides():
    calm, rough = [1.03] * 18, [1.03 * (1.05 if index % 2 else 1 / 1.05) for index in range(18)]
    assert judged_interval(calm) == pytest.approx(paired_interval(calm))
    estimate, low, high = paired_interval(rough)
    wide = judged_interval(rough)
    assert wide[0] == estimate and wide[1] < low / 1.02 and wide[2] > high * 1.02


@pytest.mark.parametrize("heavy", [False, True], ids=["normal noise", "heavy tails"])
def test_interval_covers_the_truth_as_often_as_it_says(heavy):
    noise = random.Random(20240229)
    true, trials = 1.05, 2000
    missed = 0
    for _ in range(trials):
        spread = [noise.gauss(0, 0.03) * (math.exp(noise.gauss(0, 1)) if heavy else 1) for _ in range(14)]
        _, low, high = paired_interval([true * math.exp(value) for value in spread])
        missed += not low <= true <= high
    # 0.1% of 2000 are 2, with a standard deviation of 1.4.
    assert missed <= 8


def test_median_and_spread():
    assert (median([3.0, 1.0, 2.0]), median([4.0, 1.0, 2.0, 3.0])) == (2.0, 2.5)
    assert relative_spread([2.0] * 5) == 0.0
    noise = random.Random(7)
    assert relative_spread([noise.gauss(10, 1) for _ in range(4000)]) == pytest.approx(0.1, rel=0.1)


def test_the_share_of_slow_calls_takes_few() -> None:
    """Each kind of launch begins with that many complete calls in one request, which has a time limit."""
    calls = [share_calls(*given) for given in ((500, 1e-4), (3, 1e-4), (500, 0.2), (500, 30.0))]
    assert calls == [64, 3, 5, 1]


def test_sets_leave_room_for_large_values_inside() -> None:
    """Attention over 16,384 steps writes scores of 8.6 GB and their softmax, beside inputs of 17 MB."""
    free, scores = 48 << 30, 8 << 30
    assert [room_for_sets(free, inside, "cuda") >> 30 for inside in (0, scores, 2 * scores)] == [12, 4, 0]
