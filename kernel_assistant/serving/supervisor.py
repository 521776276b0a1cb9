"""Keeps one engine running: starts it, waits until it is ready, restarts it when it ends or hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.serving.engine import EngineProcess, EngineSpec
from kernel_assistant.serving.errors import EngineError


class ServerStatus(str, Enum):
    """Whether a model server starts, is ready, restarts its engine, has failed or was stopped."""

    starting = "starting"
    ready = "ready"
    restarting = "restarting"  # it ended and will be restarted after a pause
    failed = "failed"  # it ended and will not be restarted
    stopped = "stopped"


@dataclass(frozen=True)
class SupervisorTimeouts:
    """Timeouts in seconds, and numbers of attempts. The engine is not restarted after it has ended `tries` times
    without `calm` seconds in between in which it was ready."""

    first_pause: float = 1.0
    longest_pause: float = 30.0
    tries: int = 5
    calm: float = 60.0
    look_every: float = 0.25
    health_every: float = 5.0
    silent_checks: int = 6


@dataclass(frozen=True)
class ServerChange:
    """A change of status. `error` is why the engine restarts or failed; `seconds` is the time from start to ready."""

    status: ServerStatus
    pid: int = 0
    restarts: int = 0
    seconds: float = 0.0
    error: KernelAssistantError | None = None


class Supervisor:
    """Runs an engine until `stop` is set. Calls `tell` with every change, in the thread of `run`."""

    def __init__(
        self, spec: EngineSpec, tell: Callable[[ServerChange], None], patience: SupervisorTimeouts | None = None
    ) -> None:
        self._spec = spec
        self._tell = tell
        self._patience = patience or SupervisorTimeouts()
        self._restarts = 0
        self._ready_since: float | None = None

    def run(self, stop: threading.Event) -> None:
        """Keeps the engine running until `stop` is set. If the engine ends and is not restarted any more, raises the
        error with which it ended."""
        ends = 0
        while not stop.is_set():
            error, final = self._one_life(stop)
            if error is None:
                break
            calm = self._ready_since is not None and time.monotonic() - self._ready_since >= self._patience.calm
            ends = 1 if calm else ends + 1
            if final or ends >= self._patience.tries:
                self._tell(ServerChange(ServerStatus.failed, restarts=self._restarts, error=error))
                raise error
            self._restarts += 1
            self._tell(ServerChange(ServerStatus.restarting, restarts=self._restarts, error=error))
            stop.wait(min(self._patience.longest_pause, self._patience.first_pause * 2 ** (ends - 1)))
        self._tell(ServerChange(ServerStatus.stopped, restarts=self._restarts))

    def _one_life(self, stop: threading.Event) -> tuple[KernelAssistantError | None, bool]:
        """Runs the engine from a start to its end. Returns why the engine ended (None if it was stopped), and whether
        the cause is permanent."""
        self._ready_since = None
        process = EngineProcess(self._spec)
        self._tell(ServerChange(ServerStatus.starting, process.pid, self._restarts))
        try:
            began = time.monotonic()
            while not process.healthy():
                if process.exit_code() is not None:
                    return process.cause()
                if time.monotonic() - began > self._spec.ready_seconds:
                    return self._not_ready(process), True
                if stop.wait(self._patience.look_every):
                    return None, False
            self._ready_since = time.monotonic()
            self._tell(ServerChange(ServerStatus.ready, process.pid, self._restarts, self._ready_since - began))
            return self._watch(process, stop)
        finally:
            process.stop()

    def _watch(self, process: EngineProcess, stop: threading.Event) -> tuple[KernelAssistantError | None, bool]:
        """Waits until the engine ends, hangs or is stopped. Returns the same as `_one_life`. Only `silent_checks`
        failed health checks in a row count as hanging, because a busy engine answers late."""
        silent = 0
        checked = time.monotonic()
        while not stop.wait(self._patience.look_every):
            if process.exit_code() is not None:
                error, _ = process.cause()
                return error, False
            if time.monotonic() - checked < self._patience.health_every:
                continue
            silent = 0 if process.healthy() else silent + 1
            checked = time.monotonic()
            if silent >= self._patience.silent_checks:
                return EngineError(f"{self._spec.engine} does not answer any more", f"see {self._spec.log}"), False
        return None, False

    def _not_ready(self, process: EngineProcess) -> EngineError:
        seconds = self._spec.ready_seconds
        return EngineError(f"{self._spec.engine} was not ready after {seconds:.0f} s", f"see {process.spec.log}")
