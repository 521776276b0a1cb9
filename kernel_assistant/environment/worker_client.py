"""The host's end of a worker: starts it under the user's interpreter, calls it, and names how it failed."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import IO, Any

from kernel_assistant.environment.measuring import MEASURING
from kernel_assistant.errors import Cancelled, KernelAssistantError, MissingError, SandboxError, UsageError, WorkerError
from kernel_assistant.worker.frames import PROTOCOL_VERSION, FrameError, read_frame, write_frame

BOOT = Path(__file__).resolve().parent.parent / "worker" / "boot.py"
START_SECONDS = 120.0
RELEASE_SECONDS = 10.0
MISSING_KINDS = ("torch_missing", "torch_too_old", "no_gpu")
OURS = ("internal", "unknown_method", "device_lost")


Answers = queue.Queue[tuple[dict[str, Any], tuple[bytes, ...]] | None]


class Worker:
    """One worker process. `call` may be used by one thread at a time; `kill` by any."""

    def __init__(
        self,
        python: str,
        *,
        log: Path | None = None,
        env: dict[str, str] | None = None,
        measuring: dict[str, str] = MEASURING,
    ) -> None:
        self.python, self._log, self._env = python, log, {**measuring, **(env or {})}
        self._next = 0
        self.hello: dict[str, Any] = {}
        self._launch()

    def restart(self, cancel: threading.Event | None = None) -> None:
        """A fresh process in place of this one, started the same way, and wait until it answers."""
        self.kill()
        self._launch()
        self.start(cancel)

    def _launch(self) -> None:
        self._answers: Answers = queue.Queue()
        sink = open(self._log, "ab") if self._log else None  # noqa: SIM115 - handed to the child, closed below
        try:
            self.process = subprocess.Popen(
                [self.python, str(BOOT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink or subprocess.DEVNULL,
                env={**os.environ, **self._env},
                start_new_session=True,
            )
        except OSError as error:
            cause = f"{self.python} could not be started: {error}"
            raise MissingError(cause, "name another one with --python") from error
        finally:
            if sink:
                sink.close()
        # The thread gets its own process and queue: it may outlast them by a moment when the worker is started anew.
        reader = threading.Thread(
            target=_read, args=(self.process.stdout, self._answers), name="worker-reader", daemon=True
        )
        reader.start()

    def start(self, cancel: threading.Event | None = None) -> dict[str, Any]:
        """Wait until it answers; returns its versions. Raises MissingError if its interpreter has no fit torch."""
        self.hello = self.call("hello", {}, timeout=START_SECONDS, cancel=cancel)
        if self.hello["protocol"] != PROTOCOL_VERSION:
            raise WorkerError(f"the worker speaks protocol {self.hello['protocol']}, not {PROTOCOL_VERSION}")
        return self.hello

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def call(
        self,
        method: str,
        params: dict[str, Any],
        blobs: tuple[bytes, ...] = (),
        *,
        timeout: float,
        cancel: threading.Event | None = None,
    ) -> dict[str, Any]:
        """Send one request and wait. Raises UsageError, MissingError or WorkerError by the kind of the answer;
        Cancelled and a timeout kill the process, because user code may be stuck in it."""
        self._next += 1
        self._send({"id": self._next, "method": method, "params": params}, blobs)
        message = self._wait(method, time.monotonic() + timeout, cancel)
        if "error" in message:
            raise failure(message["error"])
        return dict(message["result"])

    def kill(self) -> None:
        """End the process and everything it started."""
        if self.alive:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                try:
                    stream.close()
                except OSError:
                    continue

    def release(self) -> None:
        """Close what is open and stay warm for the next task; a worker that cannot do that is ended."""
        if self.alive:
            try:
                self.call("close_task", {}, timeout=RELEASE_SECONDS)
            except WorkerError:
                self.kill()

    def close(self) -> None:
        """Let it give its memory back and end; insist after two seconds."""
        if self.alive:
            try:
                self._send({"id": 0, "method": "shutdown"}, ())
                self.process.wait(2)
            except (WorkerError, subprocess.TimeoutExpired):
                pass
        self.kill()

    def _send(self, message: dict[str, Any], blobs: tuple[bytes, ...]) -> None:
        assert self.process.stdin is not None
        try:
            write_frame(self.process.stdin, message, blobs)
        except (OSError, ValueError) as error:
            raise WorkerError(self._how_it_ended()) from error

    def _wait(self, method: str, deadline: float, cancel: threading.Event | None) -> dict[str, Any]:
        while True:
            try:
                frame = self._answers.get(timeout=0.05)
            except queue.Empty:
                if cancel is not None and cancel.is_set():
                    self.kill()
                    raise Cancelled(f"cancelled during {method}") from None
                if time.monotonic() > deadline:
                    self.kill()
                    raise WorkerError(f"the worker did not answer {method} in time and was killed") from None
                continue
            if frame is None:
                raise WorkerError(self._how_it_ended())
            if frame[0].get("id") == self._next:
                return frame[0]

    def _how_it_ended(self) -> str:
        try:
            code = self.process.wait(2)
        except subprocess.TimeoutExpired:
            self.kill()
            return "the worker broke the protocol and was killed"
        if code < 0:
            name = signal.Signals(-code).name
            return f"the worker died of {name}" + (" (out of memory?)" if code == -signal.SIGKILL else "")
        return f"the worker ended with status {code}"


def _read(stream: IO[bytes], answers: Answers) -> None:
    try:
        while (frame := read_frame(stream)) is not None:
            answers.put(frame)
    except (FrameError, OSError, ValueError):
        pass  # the end of the stream is reported below, by how the process ended
    answers.put(None)


class DeviceLost(WorkerError):
    """The worker's CUDA context is poisoned: it must be started anew."""


class NoMemory(UsageError):
    """The device has no room for the task: its own doing, or others' who hold memory at the moment."""


def failure(error: dict[str, Any]) -> KernelAssistantError:
    """The exception for an error answer, by the side that is at fault."""
    kind, message = error["kind"], error["message"]
    next_step, detail = error.get("next_step", ""), error.get("detail", "")
    if kind in MISSING_KINDS:
        return MissingError(message, next_step, detail=detail)
    if kind == "out_of_memory":
        return NoMemory(message, next_step, detail=detail)
    if kind == "device_lost":
        return DeviceLost(message, "the worker is started anew", detail=detail)
    if kind == "runner_failed":
        return SandboxError(message, "see kernel-assistant doctor; another sandbox: --sandbox landlock", detail=detail)
    if kind in OURS:
        return WorkerError(f"the worker failed: {message}", "please report this with the log", detail=detail)
    return UsageError(message, next_step, detail=detail)
