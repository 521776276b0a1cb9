"""One warm worker for all hostile candidates, on one thread, so that other load on the machine changes little."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_assistant.environment import session
from kernel_assistant.environment.worker_client import Worker
from kernel_assistant.targets import cuda
from kernel_assistant.targets.base import DeviceFacts
from tests.common.caches import known_cpu, new_cache


@pytest.fixture(scope="package")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_cache(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="package")
def device(cache_dir: Path) -> DeviceFacts:
    """The CPU with ceilings that do not depend on what else runs now."""
    return known_cpu(cache_dir)


@pytest.fixture(scope="package")
def worker() -> Iterator[Worker]:
    running = Worker(sys.executable, env={"OMP_NUM_THREADS": "1"})
    running.start(threading.Event())
    yield running
    running.close()


@pytest.fixture(scope="package")
def gpu() -> DeviceFacts:
    """The idle GPU, as the driver describes it."""
    return cuda.idle_gpu(cuda.gpus())


@pytest.fixture(scope="package")
def gpu_worker(gpu: DeviceFacts) -> Iterator[Worker]:
    """One warm worker, with the threads that a user's has."""
    running = Worker(sys.executable)
    running.start(threading.Event())
    yield running
    running.close()


@pytest.fixture
def unscreened(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies behind the screen has to hold alone."""
    monkeypatch.setattr(session, "screen", lambda candidate, graph: ())
