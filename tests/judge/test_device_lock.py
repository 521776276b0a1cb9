"""Tests that the judge times alone but verifies together with others."""

from __future__ import annotations

import threading
import time
import uuid
from pathlib import Path

from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.records import Evaluation, Outcome, Tier
from kernel_assistant.worker.device_lock import DeviceLock
from tests.judge import kernels


def _waits(folder: Path) -> bool:
    """Whether a process holds the gate because it waits to be alone, according to the system's list of locks."""
    gate = folder / "gate.lock"
    lines = Path("/proc/locks").read_text().splitlines()
    return gate.exists() and any(line.split()[5].endswith(f":{gate.stat().st_ino}") for line in lines)


def test_one_is_verified_beside_others_and_timed_alone(tmp_path: Path, cache: Path, worker: WorkerClient) -> None:
    ours, found = DeviceLock(tmp_path), list[Evaluation]()
    with kernels.environment(worker, cache, lock=DeviceLock(tmp_path)) as environment:
        environment.baseline(compiled=False)
        environment.build(kernels.candidate())

        def evaluate() -> None:
            found.extend(environment.evaluate([kernels.candidate()], Tier.quick))

        thread = threading.Thread(target=evaluate)
        with ours.shared():
            thread.start()
            while not _waits(tmp_path):
                assert thread.is_alive()
                time.sleep(0.02)
            thread.join(0.3)
            assert not found
        thread.join()
        (evaluation,) = found
        assert evaluation.outcome is Outcome.correct and evaluation.timing is not None
        assert environment.waited > 0
    with ours.exclusive():
        pass


def test_nothing_is_built_while_somebody_is_timed(tmp_path: Path, cache: Path, worker: WorkerClient) -> None:
    built = list[object]()
    fresh = kernels.candidate(("/*END*/", f"/* built by no run before: {uuid.uuid4()} */"))
    with kernels.environment(worker, cache, lock=DeviceLock(tmp_path)) as environment:
        thread = threading.Thread(target=lambda: built.append(environment.build(fresh)))
        with DeviceLock(tmp_path).exclusive():
            thread.start()
            thread.join(0.5)
            assert not built
        thread.join()
        assert built
