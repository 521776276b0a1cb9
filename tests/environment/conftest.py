"""A worker that tests of this folder may kill, and a cache for each module of tests."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from kernel_assistant.environment.builds.compile import Compiler
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.errors import MissingError
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.targets import cuda
from kernel_assistant.targets.detect import detect
from tests.judge import kernels


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def worker(cache: Path) -> Iterator[WorkerClient]:
    started = kernels.new_worker(cache / "worker.log")
    yield started
    started.close()


@pytest.fixture
def compiler(tmp_path: Path) -> Compiler:
    """The compiler of this CPU, which keeps its builds in the test's folder."""
    return Compiler(detect("cpu"), choose("auto"), tmp_path, threading.Event())


@pytest.fixture
def nvcc() -> str:
    try:
        return cuda.compiler()
    except MissingError:
        pytest.skip("needs nvcc")


@pytest.fixture
def children() -> Callable[[], list[psutil.Process]]:
    """Every process below this one, now."""
    return lambda: psutil.Process(os.getpid()).children(recursive=True)


@pytest.fixture
def wait_for() -> Callable[[Callable[[], object]], None]:
    """Waits until a condition holds; if it never holds, the test's time limit ends the wait."""

    def wait(condition: Callable[[], object]) -> None:
        while not condition():
            time.sleep(0.02)

    return wait
