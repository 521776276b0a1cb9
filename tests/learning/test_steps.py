"""Tests how trajectories are assigned to the optimiser steps of an update."""

from __future__ import annotations

from random import Random
from statistics import mean

from kernel_assistant_training.ppo.updates.batches import in_steps

#: Short episodes, which went well, and long ones, which did not.
LENGTHS = [200 + number % 7 for number in range(48)] + [1800 + number % 7 for number in range(16)]


def test_each_is_in_one_step_and_pieces_keep_to_the_budget():
    steps = in_steps(LENGTHS, 8192, 4, Random(0))
    assert sorted(number for step in steps for piece in step for number in piece) == list(range(64))
    assert [sum(map(len, step)) for step in steps] == [16] * 4
    for piece in (piece for step in steps for piece in step):
        assert len(piece) * max(LENGTHS[number] for number in piece) <= 8192


def test_there_are_as_many_steps_as_asked_for_even_where_all_fits_into_one_piece():
    assert len(in_steps([100] * 8, 1 << 20, 4, Random(0))) == 4
    assert len(in_steps([100] * 3, 1 << 20, 4, Random(0))) == 3


def test_no_step_has_the_long_ones_alone():
    for seed in range(20):
        steps = in_steps(LENGTHS, 8192, 4, Random(seed))
        shares = [mean(LENGTHS[number] > 1000 for piece in step for number in piece) for step in steps]
        assert max(shares) < 0.75 and min(shares) < 0.3


def test_the_same_random_numbers_deal_alike_and_others_do_not():
    assert in_steps(LENGTHS, 8192, 4, Random(3)) == in_steps(LENGTHS, 8192, 4, Random(3))
    assert in_steps(LENGTHS, 8192, 4, Random(3)) != in_steps(LENGTHS, 8192, 4, Random(4))
