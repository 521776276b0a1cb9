"""Tests which finalists are measured in full, and for how long."""

from __future__ import annotations

import time

import pytest

from kernel_assistant.agent.confirming import ConfirmationBudget, within_reach
from kernel_assistant.records import Evaluation, Outcome, Stage, Tier, Timing
from tests.common.results import accuracy_of


def first(compiled: tuple[float, float] | None, eager: tuple[float, float] | None) -> Evaluation:
    timing = Timing(
        candidate_ms=1.0,
        eager_ms=1.0,
        speedup_vs_eager=1.0,
        speedup_vs_compile_ci=compiled,
        speedup_vs_eager_ci=eager,
    )
    accuracy = accuracy_of(error=0.0, reference_error=0.0, relative_error=0.0, inputs_tried=10, shapes_tried=4)
    return Evaluation(
        candidate="a",
        tier=Tier.full,
        outcome=Outcome.correct,
        stage=Stage.profile,
        message="",
        accuracy=accuracy,
        timing=timing,
    )


@pytest.mark.parametrize(
    ("compiled", "eager", "expected"),
    [
        ((0.97, 1.03), (1.5, 1.6), True),
        ((1.1, 1.2), (1.5, 1.6), True),
        ((0.97, 0.99), (1.5, 1.6), False),
        ((1.1, 1.2), (0.8, 0.9), False),
        (None, (1.1, 1.2), True),
        (None, (0.8, 0.9), False),
    ],
)
def test_another_finalist_is_in_reach_while_the_first_is_not_slower(compiled, eager, expected):
    assert within_reach(first(compiled, eager)) is expected


def test_what_one_evaluation_takes_is_expected_of_the_next():
    clock = ConfirmationBudget(3600.0)
    assert clock.has_room(1) and clock.has_room(10**9)
    with clock.one():
        time.sleep(0.01)
    assert clock.has_room(2) and not clock.has_room(10**9)
    assert not ConfirmationBudget(-1.0).has_room(1)
