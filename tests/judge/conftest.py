"""One warm worker for all tests of this folder, and one environment for those that break nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_assistant.environment.session import Environment
from kernel_assistant.environment.worker_client import Worker
from tests.judge import kernels


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds and the device's bandwidths, shared by the session."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def worker(cache: Path) -> Iterator[Worker]:
    """A warm worker; a test that loses it gets it started anew by the environment."""
    started = kernels.new_worker(cache / "worker.log")
    yield started
    started.close()


@pytest.fixture(scope="module")
def norm(worker: Worker, cache: Path) -> Iterator[Environment]:
    """The small norm, open."""
    with kernels.environment(worker, cache) as opened:
        yield opened
