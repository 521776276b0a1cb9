"""A worker and a cache for each file of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_assistant.environment.worker_client import WorkerClient
from tests.judge import kernels


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerClient]:
    started = kernels.new_worker(tmp_path_factory.mktemp("worker") / "worker.log")
    yield started
    started.close()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")
