"""A compiler that builds candidates before anybody asks for them, while something else is measured."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from kernel_assistant.environment.compile import Binary, CompileFailure, Compiler
from kernel_assistant.records import Candidate
from kernel_assistant.sandbox.contract import Sandbox
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.worker.device_lock import DeviceLock

#: Added to the niceness of what builds ahead: what is measured goes first.
NICER = 5


class AheadCompiler(Compiler):
    """Each candidate that was begun is built once, failures too; others as by `Compiler`. Thread-safe.

    What is built ahead is built on `cores`, where there are any, and not where something is measured.
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
        self._begun: dict[str, Future[Binary | CompileFailure]] = {}

    def begin(self, candidates: Iterable[Candidate]) -> None:
        for candidate in candidates:
            if candidate.hash() not in self._begun:
                self._begun[candidate.hash()] = self._pool.submit(super().build, candidate)

    def build(self, candidate: Candidate) -> Binary | CompileFailure:
        begun = self._begun.get(candidate.hash())
        return super().build(candidate) if begun is None else begun.result()

    def forget(self, candidates: Iterable[Candidate]) -> None:
        """Nobody will ask for these any more."""
        for candidate in candidates:
            begun = self._begun.pop(candidate.hash(), None)
            if begun is not None:
                begun.cancel()

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


def _be_nice(cores: Collection[int]) -> None:
    """Of this thread and the compilers that it starts."""
    here = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, here, min(os.getpriority(os.PRIO_PROCESS, here) + NICER, 19))
    if cores:
        os.sched_setaffinity(here, cores)
