"""One warm worker for all hostile candidates, with one thread, so that other load on the machine has little effect."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_assistant.environment import session
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.targets import cuda
from kernel_assistant.targets.base import DeviceFacts
from tests.common.caches import known_cpu, new_cache


@pytest.fixture(scope="package")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_cache(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="package")
def device(cache_dir: Path) -> DeviceFacts:
    """The CPU with bandwidths that do not depend on other load."""
    return known_cpu(cache_dir)


@pytest.fixture(scope="package")
def worker() -> Iterator[WorkerClient]:
    running = WorkerClient(sys.executable, env={"OMP_NUM_THREADS": "1"})
    running.start(threading.Event())
    yield running
    running.close()


@pytest.fixture(scope="module")
def worker_with_two_threads() -> Iterator[WorkerClient]:
    running = WorkerClient(sys.executable, env={"OMP_NUM_THREADS": "2"})
    running.start(threading.Event())
    yield running
    running.close()


@pytest.fixture(scope="package")
def gpu() -> DeviceFacts:
    """The idle GPU, as the driver describes it."""
    return cuda.idle_gpu(cuda.gpus())


@pytest.fixture(scope="package")
def gpu_worker(gpu: DeviceFacts) -> Iterator[WorkerClient]:
    """One warm worker with as many threads as a user's worker."""
    running = WorkerClient(sys.executable)
    running.start(threading.Event())
    yield running
    running.close()


@pytest.fixture
def unscreened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switches the screen off, because the other defences have to suffice without it."""
    monkeypatch.setattr(session, "screen", lambda candidate, graph: ())
