"""One warm worker for all tests of this folder, and one environment for the tests that break nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_assistant.environment.session import Environment
from kernel_assistant.environment.worker_client import WorkerClient
from tests.judge import kernels


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds and the device's bandwidths, shared by all tests."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def worker(cache: Path) -> Iterator[WorkerClient]:
    """A warm worker. If a test loses it, the environment starts a new one."""
    started = kernels.new_worker(cache / "worker.log")
    yield started
    started.close()


@pytest.fixture(scope="module")
def norm(worker: WorkerClient, cache: Path) -> Iterator[Environment]:
    """The environment in which the small norm is open."""
    with kernels.environment(worker, cache) as opened:
        yield opened
