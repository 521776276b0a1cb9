"""Every exploit of the public table that a plan's C++ can contain, with the screen and without it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_assistant.environment.builds.compile import Binary
from kernel_assistant.environment.screens.screen import screen
from kernel_assistant.environment.session import Environment
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.records import Evaluation, Outcome, Tier
from kernel_assistant.targets.base import DeviceFacts
from tests.hostile import plan_process_attacks, plan_value_attacks
from tests.hostile.plan_attacks import DECLARED, HIDDEN, HONEST, OWN_THREADS, POOL
from tests.hostile.plan_attacks import FULL as FULL_ATTACKS
from tests.hostile.plan_attacks import QUICK as QUICK_ATTACKS
from tests.hostile.plan_task import opened, softmax_candidate

QUICK = {**QUICK_ATTACKS, **plan_process_attacks.QUICK}
FULL = {**FULL_ATTACKS, **plan_value_attacks.FULL}


@pytest.fixture(scope="module")
def environment(
    worker: WorkerClient, device: DeviceFacts, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Environment]:
    with opened(32, 4096, tmp_path_factory.mktemp("plan"), worker, device, cache_dir) as environment:
        yield environment


def judged(environment: Environment, text: str, tier: Tier = Tier.quick) -> Evaluation:
    return environment.evaluate([softmax_candidate(environment, text)], tier)[0]


@pytest.fixture(scope="module")
def honest(environment: Environment) -> dict[Tier, Evaluation]:
    """The kernel that every attack changes."""
    return {tier: judged(environment, HONEST, tier) for tier in (Tier.quick, Tier.full)}


@pytest.mark.parametrize("tier", [Tier.quick, Tier.full])
def test_honest_kernel_is_correct(honest: dict[Tier, Evaluation], tier: Tier) -> None:
    assert honest[tier].outcome is Outcome.correct, honest[tier].message
    assert honest[tier].timing is not None


@pytest.fixture(scope="module")
def with_two_threads(
    worker_with_two_threads: WorkerClient,
    device: DeviceFacts,
    cache_dir: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Environment]:
    folder = tmp_path_factory.mktemp("two-threads")
    with opened(32, 4096, folder, worker_with_two_threads, device, cache_dir) as environment:
        yield environment


@pytest.mark.usefixtures("unscreened")
def test_no_thread_but_those_of_openmp(with_two_threads: Environment) -> None:
    def outcome(text: str) -> Outcome:
        return judged(with_two_threads, text).outcome

    assert outcome(HONEST) is outcome(POOL) is Outcome.correct
    assert {name: outcome(text) for name, text in OWN_THREADS.items()} == dict.fromkeys(OWN_THREADS, Outcome.cheating)
    assert outcome(plan_process_attacks.POOL_WORKS_ON) in (Outcome.cheating, Outcome.incorrect)


def verified(environment: Environment, text: str) -> Evaluation:
    """Verifies with all cases of the full tier, without timing."""
    candidate = softmax_candidate(environment, text)
    built = environment.build(candidate)
    assert isinstance(built, Binary), built
    return environment.judge_binary(candidate, built, profile=False)


@pytest.mark.usefixtures("unscreened")
@pytest.mark.parametrize("name", DECLARED)
def test_what_is_right_at_the_declared_sizes_counts_for_these(environment: Environment, name: str) -> None:
    found = verified(environment, DECLARED[name])
    assert (found.outcome, found.sizes) == (Outcome.correct, "declared"), found.message
    assert found.elsewhere and not found.correct_everywhere and found.accuracy and found.accuracy.shapes_tried == 1


@pytest.mark.usefixtures("unscreened")
@pytest.mark.parametrize("name", HIDDEN)
def test_other_sizes_are_no_place_to_hide(environment: Environment, name: str) -> None:
    found = verified(environment, HIDDEN[name])
    assert found.outcome is Outcome.incorrect and "declared" in found.message, found.message


@pytest.mark.usefixtures("unscreened")
@pytest.mark.parametrize("name", [*FULL, *QUICK])
def test_attack_is_not_correct(environment: Environment, honest: dict[Tier, Evaluation], name: str) -> None:
    tier = Tier.full if name in FULL else Tier.quick
    text, outcomes = {**FULL, **QUICK}[name]
    evaluation = judged(environment, text, tier)
    assert honest[tier].correct
    assert evaluation.outcome.value in outcomes, (evaluation.outcome, evaluation.message)


@pytest.mark.usefixtures("unscreened")
def test_judge_survives_and_judges_on(environment: Environment, worker: WorkerClient) -> None:
    pid = worker.process.pid
    for name in ("kills everybody", "segfaults"):
        judged(environment, QUICK[name][0])
    after = judged(environment, HONEST)
    assert after.correct, after.message
    assert worker.process.pid == pid and os.path.exists(f"/proc/{pid}")


SCREENED = (
    *("makes its input writable", "thread finishes later", "forged answer at load", "runner patched to do nothing"),
    *("forks", "clones", "reads its parent's memory", "reads a file while compiling", "assembles a file"),
)


@pytest.mark.parametrize("name", SCREENED)
def test_screen_says_so_first(environment: Environment, name: str) -> None:
    assert not screen(softmax_candidate(environment, HONEST), environment.graph)
    evaluation = judged(environment, QUICK[name][0])
    assert evaluation.outcome is Outcome.refused
    assert evaluation.diagnostics[0].line > 0


@pytest.mark.parametrize("name", plan_process_attacks.PAST_THE_SCREEN)
def test_what_the_screen_does_not_see_is_refused_by_the_judge(environment: Environment, name: str) -> None:
    text, outcomes = plan_process_attacks.PAST_THE_SCREEN[name]
    evaluation = judged(environment, text)
    assert evaluation.outcome.value in outcomes, (evaluation.outcome, evaluation.message)


def test_screen_reads_on_behind_a_comment(environment: Environment) -> None:
    found = screen(softmax_candidate(environment, plan_process_attacks.BEHIND_A_COMMENT), environment.graph)
    assert [one.message for one in found if "process calls" in one.message]
