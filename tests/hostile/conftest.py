"""One warm worker for all hostile candidates, with one thread, so that other load on the machine has little effect."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kernel_assistant.environment import session
from kernel_assistant.environment.builds.compile import CompileFailure
from kernel_assistant.environment.freeform import FreeformEnvironment
from kernel_assistant.environment.freeform_candidate import ModelCandidate
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.records import Evaluation, Tier
from kernel_assistant.targets import cuda
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant_training.evaluation import workers
from tests.common.caches import known_cpu, new_cache


@pytest.fixture(scope="package")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_cache(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="package")
def device(cache_dir: Path) -> DeviceFacts:
    """The CPU with bandwidths that do not depend on other load."""
    return known_cpu(cache_dir)


@contextmanager
def started(env: dict[str, str] | None = None) -> Iterator[WorkerClient]:
    """A warm worker, closed at the end."""
    running = WorkerClient(sys.executable, env=env)
    running.start(threading.Event())
    yield running
    running.close()


@pytest.fixture(scope="package")
def worker() -> Iterator[WorkerClient]:
    with started({"OMP_NUM_THREADS": "1"}) as running:
        yield running


@pytest.fixture(scope="module")
def worker_with_two_threads() -> Iterator[WorkerClient]:
    with started({"OMP_NUM_THREADS": "2"}) as running:
        yield running


@pytest.fixture(scope="package")
def gpu() -> DeviceFacts:
    """The idle GPU, as the driver describes it."""
    return cuda.idle_gpu(cuda.gpus())


@pytest.fixture(scope="package")
def gpu_worker(gpu: DeviceFacts) -> Iterator[WorkerClient]:
    """One warm worker with as many threads as a user's worker."""
    with started() as running:
        yield running


@pytest.fixture(scope="module")
def built(environment: FreeformEnvironment, honest: ModelCandidate) -> Path:
    """The extension that all hostile files share."""
    folder = environment.builder.build(honest)
    assert not isinstance(folder, CompileFailure), folder
    return folder


@pytest.fixture(scope="module")
def verdicts(environment: FreeformEnvironment, honest: ModelCandidate, built: Path) -> dict[Tier, Evaluation]:
    return {tier: environment.measure(honest, built, tier) for tier in (Tier.quick, Tier.full)}


@pytest.fixture
def unscreened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switches the screen off, because the other defences have to suffice without it."""
    for module in (session, workers):
        monkeypatch.setattr(module, "screen", lambda candidate, graph: ())
