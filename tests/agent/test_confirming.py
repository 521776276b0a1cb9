"""Tests which finalists are measured in full, and for how long."""

from __future__ import annotations

import time

import pytest

from kernel_assistant.agent.confirming import ConfirmationBudget, within_reach
from tests.agent.models import correct


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
    assert within_reach(correct("a", compiled=compiled, eager=eager)) is expected


def test_what_one_evaluation_takes_is_expected_of_the_next():
    clock = ConfirmationBudget(3600.0)
    assert clock.has_room(1) and clock.has_room(10**9)
    with clock.one():
        time.sleep(0.01)
    assert clock.has_room(2) and not clock.has_room(10**9)
    assert not ConfirmationBudget(-1.0).has_room(1)
