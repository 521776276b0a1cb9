"""Tests the report of a result with PyTorch's own calls, and that paper numerics allow none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kernel_assistant.agent.budget import Budget
from kernel_assistant.agent.loop import run_episode
from kernel_assistant.cli.report import report
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.search.search import initial
from kernel_assistant.policy.generator import GeneratorPolicy
from kernel_assistant.records import JobOutcome, Numerics, Outcome, StopReason, Tier
from kernel_assistant.session.artifacts import write_result
from kernel_assistant.session.kinds.outcome import best_of
from tests.common.results import result
from tests.judge import kernels
from tests.residual.modules import CONV


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerClient]:
    started = kernels.new_worker(tmp_path_factory.mktemp("worker") / "worker.log")
    yield started
    started.close()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.slow
def test_full_tier_and_what_is_told(worker: WorkerClient, cache: Path, tmp_path: Path) -> None:
    """Runs every case of the full tier, with other weights and sizes, and checks the report."""
    with kernels.environment(worker, cache, kernels.task(CONV, "Conv")) as environment:
        graph = environment.graph
        candidate = emit(graph, initial(graph, "cpu", environment.device)[0])
        (evaluation,) = environment.evaluate([candidate], Tier.full)
    assert evaluation.outcome is Outcome.correct, evaluation.message
    best = best_of(evaluation, "generator", ())
    assert best is not None and best.residual == ("conv2d (n0)",) and best.share_in_our_kernels < 1.0
    write = write_result(
        tmp_path / "result",
        task=environment.task,
        graph=graph,
        device=environment.device,
        facts={},
        trajectory=None,
        candidate=candidate,
        evaluation=evaluation,
        binaries={},
    )
    measured = result(outcome=JobOutcome.no_measurable_gain, best=best, artifacts=write)
    told = next(line for line in report(measured) if "in our kernels" in line)
    assert "(partial)" in told and "PyTorch's own calls: conv2d (n0)" in told


def test_paper_numerics_refuse_it_and_the_search_ends(worker: WorkerClient, cache: Path) -> None:
    task = msgspec.structs.replace(kernels.task(CONV, "Conv"), numerics=Numerics.paper)
    with kernels.environment(worker, cache, task) as environment:
        trajectory = run_episode(
            environment,
            GeneratorPolicy(),
            Budget(seconds=60),
            emit=lambda event: None,
            cancel=threading.Event(),
        )
    assert trajectory.stop_reason is StopReason.finished and trajectory.best is None
    (refused,) = [one for step in trajectory.steps for one in step.evaluations]
    assert refused.outcome is Outcome.refused and "paper numerics" in refused.message
