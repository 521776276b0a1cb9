"""Tests that a candidate gains nothing by remembering results, or by working while no clock runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_assistant.environment.session import Environment
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.records import Outcome, Tier
from kernel_assistant.targets.base import DeviceFacts
from tests.hostile import plan_attacks, plan_process_attacks
from tests.hostile.plan_task import opened, softmax_candidate

HARMLESS = {**plan_attacks.HARMLESS, **plan_process_attacks.HARMLESS}


@pytest.fixture(scope="module")
def environment(
    worker: WorkerClient, device: DeviceFacts, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Environment]:
    with opened(4, 256, tmp_path_factory.mktemp("memory"), worker, device, cache_dir) as environment:
        yield environment


@pytest.mark.usefixtures("unscreened")
@pytest.mark.parametrize("name", HARMLESS)
def test_attack_never_gains_time(environment: Environment, name: str) -> None:
    evaluation = environment.evaluate([softmax_candidate(environment, HARMLESS[name])], Tier.full)[0]
    assert evaluation.outcome is Outcome.correct, evaluation.message
