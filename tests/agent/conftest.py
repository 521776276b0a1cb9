"""One worker and one open environment for all episodes."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kernel_assistant.environment.session import Environment
from tests.judge import kernels


@pytest.fixture(scope="module")
def cancel() -> threading.Event:
    """The event that cancels the environment of these tests."""
    return threading.Event()


@pytest.fixture(scope="module")
def nominal() -> bool:
    """Whether times are the same on any machine; False where a test's subject is which candidate is faster."""
    return True


@pytest.fixture(scope="module")
def norm(tmp_path_factory: pytest.TempPathFactory, cancel: threading.Event, nominal: bool) -> Iterator[Environment]:
    cache = tmp_path_factory.mktemp("cache")
    worker = kernels.new_worker(cache / "worker.log")
    with kernels.environment(worker, cache, cancel=cancel, nominal=nominal) as opened:
        yield opened
    worker.close()
