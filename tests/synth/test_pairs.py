"""The stream of conversations: they equal those of the compact profile, and the profile can parse the answers."""

from __future__ import annotations

from collections import Counter
from itertools import groupby, islice

import pytest

from kernel_assistant.agent.calls import code_of
from kernel_assistant.agent.directives import UNITS, candidate_from
from kernel_assistant.agent.prompts import compact_system
from kernel_assistant_training.synth import pairs, split
from kernel_assistant_training.synth.conversations import (
    ARCHITECTURES,
    EASY,
    LEVELS,
    RAMP,
    SCHEDULES,
    drawn,
    level_weights,
)

TARGETS = ("cuda", "cpu")


@pytest.mark.parametrize("target", TARGETS)
def test_conversations_have_a_question_and_an_answer(target: str) -> None:
    for system, user, assistant in islice(pairs(1, target), 40):
        assert [system.role, user.role, assistant.role] == ["system", "user", "assistant"]
        assert system.content == compact_system(target)
        figures = user.content.splitlines()[-1]
        assert figures.startswith("B=")
        assert figures.split()[-2] in ARCHITECTURES[target]
        assert code_of(assistant.content)


@pytest.mark.parametrize("target", TARGETS)
def test_answers_are_candidates_of_training_tasks(target: str) -> None:
    for pair in islice(drawn(5, target, Counter()), 40):
        files = {f"kernel{UNITS[target][0]}": pair.source}
        assert candidate_from(files, pair.graph, target, pair.task).plan.launches
        assert split(pair.task) == "train"


def test_streams_are_their_seeds() -> None:
    first, again, other = (list(islice(pairs(seed, "cpu"), 10)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_no_graph_comes_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernel_assistant_training.synth.conversations.CAP", 1)
    monkeypatch.setattr("kernel_assistant_training.synth.conversations.FAVOURED", {frozenset(): 1.0})
    monkeypatch.setattr("kernel_assistant_training.synth.conversations.EASY", (1.0, 0.0, 0.0, 0.0, 0.0))
    yields: Counter[str] = Counter()
    keys = [key for key, _ in groupby(pair.task.key() for pair in islice(drawn(3, "cuda", yields), 250))]
    assert len(set(keys)) == len(keys) >= 250 / SCHEDULES
    assert yields["seen too often"] > 0


def test_streams_begin_with_easy_tasks() -> None:
    first, half, usual, later = (level_weights(made) for made in (0, RAMP // 2, RAMP, 9 * RAMP))
    assert first == list(EASY)
    assert usual == later == list(LEVELS)
    assert first[0] > half[0] > usual[0]
    assert all(sum(weights) == pytest.approx(1) for weights in (first, half, usual))


def test_a_model_that_goes_on_gets_long_tasks_from_the_first_pair_on() -> None:
    new, continued = (
        [len(pair.steps) for pair in islice(drawn(4, "cpu", Counter(), continued=goes_on), 80)]
        for goes_on in (False, True)
    )
    assert sum(continued) > sum(new) + 80
