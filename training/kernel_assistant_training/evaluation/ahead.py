"""A compiler that builds candidates in the background before they are needed, while other candidates are measured."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from kernel_assistant.environment.builds.compile import Binary, CompileFailure, Compiler
from kernel_assistant.records import Candidate
from kernel_assistant.sandbox.contract import Sandbox
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.worker.device_lock import DeviceLock

#: Added to the niceness of background builds: measurements go first.
NICER = 5


class AheadCompiler(Compiler):
    """A compiler that builds each candidate passed to `begin` once, in the background, and keeps the result, even if it
    is a failure. It builds other candidates as `Compiler` does. Thread-safe.

    With `cores`, background builds run on these cores only, away from the cores that are used for measurements.
    """

    def __init__(
        self,
        device: DeviceFacts,
        sandbox: Sandbox,
        cache_dir: Path,
        cancel: threading.Event,
        *,
        threads: int,
        cores: Collection[int] = (),
        lock: DeviceLock | None = None,
    ) -> None:
        super().__init__(device, sandbox, cache_dir, cancel, lock)
        self._pool = ThreadPoolExecutor(threads, "ahead", initializer=_be_nice, initargs=(cores,))
        self._begun: dict[str, Future[Binary | CompileFailure | None]] = {}

    def begin(
        self, candidates: Iterable[Candidate], accepted: Callable[[Candidate], bool] = lambda candidate: True
    ) -> None:
        """Builds, in the background, those candidates for which `accepted` returns True; `accepted` runs in the
        background, too. Does nothing for candidates whose build was begun earlier."""
        for candidate in candidates:
            if candidate.hash() not in self._begun:
                self._begun[candidate.hash()] = self._pool.submit(self._accepted, candidate, accepted)

    def build(self, candidate: Candidate) -> Binary | CompileFailure:
        begun = self._begun.get(candidate.hash())
        with suppress(CancelledError):  # another task with the same candidate has ended
            if begun is not None and (built := begun.result()) is not None:
                return built
        return super().build(candidate)

    def forget(self, candidates: Iterable[Candidate]) -> None:
        """Drops the results of these candidates, and cancels builds that have not begun."""
        for candidate in candidates:
            begun = self._begun.pop(candidate.hash(), None)
            if begun is not None:
                begun.cancel()

    def _accepted(self, candidate: Candidate, accepted: Callable[[Candidate], bool]) -> Binary | CompileFailure | None:
        return super().build(candidate) if accepted(candidate) else None

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


def _be_nice(cores: Collection[int]) -> None:
    """Lowers the priority of this thread and of the compilers that it starts. If `cores` is not empty, binds them to
    these cores."""
    here = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, here, min(os.getpriority(os.PRIO_PROCESS, here) + NICER, 19))
    if cores:
        os.sched_setaffinity(here, cores)
