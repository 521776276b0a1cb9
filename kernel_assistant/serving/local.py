"""A llama.cpp process that belongs to this process and is started when needed."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path

import psutil

from kernel_assistant.serving.engine import EngineProcess, EngineSpec
from kernel_assistant.serving.errors import EngineError
from kernel_assistant.serving.llama.llama import SLOTS
from kernel_assistant.serving.turn import turn

_CHECK_EVERY = 0.05


class LocalEngine:
    """One llama.cpp engine of this process. Thread-safe. If the engine has ended, the next call of `running` starts it
    again."""

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = replace(spec, log=_own_log(spec.log.parent))
        self._process: EngineProcess | None = None
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(SLOTS)

    def running(self) -> EngineSpec:
        """Starts the engine unless it runs, and waits until it is ready. Returns its specification. If it does not get
        ready, raises an error with the reason."""
        with self._lock:
            if self._process is None or self._process.exit_code() is not None:
                self._process = EngineProcess(self.spec)
                self._await(self._process)
        return self.spec

    def reply(self, cancelled: Callable[[], bool]) -> AbstractContextManager[None]:
        """Returns a context manager in which one whole reply is generated. It admits as many replies at once as the
        engine has slots (caches of one conversation each); with more, each request would first replace another reply's
        cache. Raises Cancelled while it waits."""
        return turn(self._slots, cancelled, "other conversations were writing")

    def why(self) -> EngineError:
        """Returns an error that says why a request failed: how the process ended, or that it runs but does not
        answer."""
        process = self._process
        if process is not None:
            deadline = time.monotonic() + 1.0  # the connection may break before the end of the process is noticed
            while process.exit_code() is None and time.monotonic() < deadline:
                time.sleep(_CHECK_EVERY)
            if process.exit_code() is not None:
                cause = process.cause()[0]
                return EngineError(cause.cause, cause.next_step)
        return EngineError(f"{self.spec.engine} does not answer", f"see {self.spec.log}")

    def stop(self) -> None:
        """Ends the engine and deletes its log, which was never shown to the user."""
        with self._lock:
            if self._process is not None:
                self._process.stop()
                self._process = None
        with suppress(FileNotFoundError):
            self.spec.log.unlink()

    def _await(self, process: EngineProcess) -> None:
        deadline = time.monotonic() + self.spec.ready_seconds
        while not process.healthy():
            if process.exit_code() is not None:
                raise process.cause()[0]
            if time.monotonic() > deadline:
                process.stop()
                raise EngineError(f"{self.spec.engine} was not ready in time", f"see {self.spec.log}")
            time.sleep(_CHECK_EVERY)


def _own_log(folder: Path) -> Path:
    """Returns a log file for this process, since several processes may run engines. Deletes the logs of processes that
    were killed."""
    for path in folder.glob("embedded-*.log"):
        if not psutil.pid_exists(int(path.stem.split("-")[1])):
            path.unlink(missing_ok=True)
    descriptor, log = tempfile.mkstemp(prefix=f"embedded-{os.getpid()}-", suffix=".log", dir=folder)
    os.close(descriptor)
    return Path(log)
