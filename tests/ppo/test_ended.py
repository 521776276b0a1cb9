"""Tests that each episode ends in one way that has a name, which explains its reward."""

from __future__ import annotations

import pytest

from kernel_assistant.records import Outcome
from kernel_assistant_training.ppo.ended import WORDS, ended, endings
from kernel_assistant_training.ppo.rollouts import figures_of
from tests.ppo.trajectories import trajectory


def _episode(value=-1.0, **fields):
    return trajectory([1, 2, 3], [(1, 2)], value, **{"stop": "turns", **fields})


CASES = [
    ("right", {"value": 1.0, "outcomes": ("incorrect", "correct")}),
    ("right", {"value": 1.0, "outcomes": ("correct",), "cut_off": True}),
    ("void", {"value": 1.0, "outcomes": ("correct",), "void": True}),
    ("wrong", {"outcomes": ("compile_error", "incorrect")}),
    # In the quick tier; not in full.
    ("wrong", {"outcomes": ("correct",)}),
    ("not_compiled", {"outcomes": ("incorrect", "compile_error")}),
    ("residual", {"outcomes": ("residual",)}),
    ("crashed", {"outcomes": ("hung",)}),
    ("cut_off", {"calls": ("schema",), "cut_off": True}),
    ("cut_off", {"outcomes": ("incorrect",), "stop": "tokens"}),
    ("unread", {"calls": ("evaluate", "schema")}),
    ("nothing", {"calls": ("schema", "idle")}),
    ("nothing", {}),
]


@pytest.mark.parametrize(("word", "fields"), CASES)
def test_an_episode_ends_in_one_way(word, fields):
    assert ended(_episode(**fields)) == word


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_has_a_word(outcome):
    assert ended(_episode(outcomes=(outcome.value,))) in WORDS


def test_figures_of_an_iteration_count_all_of_them():
    figures = figures_of([_episode(**fields) for _, fields in CASES])
    found = {name: value for name, value in figures.items() if name.startswith("ended_")}
    assert list(found) == [f"ended_{word}" for word in WORDS]
    assert sum(found.values()) == figures["episodes"] == len(CASES)
    assert (found["ended_right"], found["ended_cut_off"], found["ended_refused"]) == (2, 2, 0)
    assert set(endings([]).values()) == {0}
