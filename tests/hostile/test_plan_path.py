"""Every exploit of the public table that a plan's C++ can take, with the screen and without it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_assistant.environment.screen import screen
from kernel_assistant.environment.session import Environment
from kernel_assistant.environment.worker_client import Worker
from kernel_assistant.records import (
    Evaluation,
    Outcome,
    Tier,
)
from kernel_assistant.targets.base import DeviceFacts
from tests.hostile.plan_attacks import FULL, HONEST, QUICK
from tests.hostile.plan_task import opened, softmax_candidate


@pytest.fixture(scope="module")
def environment(
    worker: Worker, device: DeviceFacts, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Environment]:
    with opened(32, 4096, tmp_path_factory.mktemp("plan"), worker, device, cache_dir) as environment:
        yield environment


@pytest.fixture(scope="module")
def honest(environment: Environment) -> dict[Tier, Evaluation]:
    """The kernel that every attack is made from."""
    return {
        tier: environment.evaluate([softmax_candidate(environment, HONEST)], tier)[0]
        for tier in (Tier.quick, Tier.full)
    }


@pytest.mark.parametrize("tier", [Tier.quick, Tier.full])
def test_honest_kernel_is_correct(honest: dict[Tier, Evaluation], tier: Tier) -> None:
    assert honest[tier].outcome is Outcome.correct, honest[tier].message
    assert honest[tier].timing is not None


@pytest.mark.alone
@pytest.mark.usefixtures("unscreened")
@pytest.mark.parametrize("name", FULL)
def test_attack_is_not_correct_in_full(environment: Environment, honest: dict[Tier, Evaluation], name: str) -> None:
    text, outcomes = FULL[name]
    evaluation = environment.evaluate([softmax_candidate(environment, text)], Tier.full)[0]
    assert honest[Tier.full].correct
    assert evaluation.outcome.value in outcomes, (evaluation.outcome, evaluation.message)


@pytest.mark.usefixtures("unscreened")
@pytest.mark.parametrize("name", QUICK)
def test_attack_is_not_correct(environment: Environment, honest: dict[Tier, Evaluation], name: str) -> None:
    text, outcomes = QUICK[name]
    evaluation = environment.evaluate([softmax_candidate(environment, text)], Tier.quick)[0]
    assert honest[Tier.quick].correct
    assert evaluation.outcome.value in outcomes, (evaluation.outcome, evaluation.message)


@pytest.mark.usefixtures("unscreened")
def test_judge_survives_and_judges_on(environment: Environment, worker: Worker) -> None:
    pid = worker.process.pid
    for name in ("kills everybody", "segfaults"):
        environment.evaluate([softmax_candidate(environment, QUICK[name][0])], Tier.quick)
    after = environment.evaluate([softmax_candidate(environment, HONEST)], Tier.quick)[0]
    assert after.correct, after.message
    assert worker.process.pid == pid and os.path.exists(f"/proc/{pid}")


SCREENED = (
    "makes its input writable",
    "thread finishes later",
    "forged answer at load",
    "runner patched to do nothing",
    "forks",
    "clones",
    "reads its parent's memory",
    "reads a file while compiling",
    "assembles a file",
)


@pytest.mark.parametrize("name", SCREENED)
def test_screen_says_so_first(environment: Environment, name: str) -> None:
    assert not screen(softmax_candidate(environment, HONEST), environment.graph)
    evaluation = environment.evaluate([softmax_candidate(environment, QUICK[name][0])], Tier.quick)[0]
    assert evaluation.outcome is Outcome.refused
    assert evaluation.diagnostics[0].line > 0
