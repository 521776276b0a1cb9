"""Tests which episodes rejection fine-tuning keeps, and which of their tokens are learned."""

from __future__ import annotations

import pytest

from kernel_assistant_training.ppo.updates.selection import against, choose, learned
from tests.ppo.trajectories import trajectory

#: Two observations, a fault, its observation, a right answer, an observation, the end.
IDS = [1, 2, 30, 31, 3, 40, 41, 42, 4, 50]
SPANS = [(2, 2), (5, 3), (9, 1)]
REPAIR = {"calls": ("evaluate", "evaluate", "finish"), "candidates": ("a", "b")}
REPAIR |= {"outcomes": ("compile_error", "correct")}


def episode(ids=IDS, value=1.0, spans=SPANS, **changed):
    return trajectory(ids, spans, value, **(REPAIR | changed))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, ""),
        ({"value": -1.0}, "reward"),
        ({"void": True}, "void"),
        ({"calls": ("schema", "evaluate", "finish")}, "schema"),
        ({"calls": ("evaluate", "evaluate", "idle")}, "loop"),
        ({"candidates": ("a", "a")}, "loop"),
        ({"ids": [1, 2, 30, 31, 3, 30, 31, 42, 4, 50], "spans": [(2, 2), (5, 2), (9, 1)]}, "loop"),
    ],
)
def test_reasons(changed, why):
    assert against(episode(**changed)) == why


def test_the_fault_is_seen_and_the_repair_is_learned():
    tokens = learned(episode())
    assert [token for token, mark in zip(tokens.ids, tokens.learned, strict=True) if mark] == [40, 41, 42, 50]
    assert tokens.ids == IDS


def test_easy_tasks_do_not_drown_the_others():
    easy = [episode([1, 2, 30, 31, 3, 40, 41, number, 4, 50], key="easy", seed=number) for number in range(60)]
    again = episode([9, 9, *easy[0].said().ids[2:]], key="easy", seed=99)
    hard = episode(key="hard")
    chosen = choose([episode(value=-1.0), *easy, again, hard], most_each=3)
    assert [one.key for one in chosen.kept] == ["easy"] * 3 + ["hard"]
    assert chosen.left_out == {"reward": 1, "enough": 57, "known": 1}
