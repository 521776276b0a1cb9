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
from kernel_assistant.environment.template_key import TemplateKey, key_of
from kernel_assistant.environment.worker_template import Forked, Order, connect, fork
from kernel_assistant.errors import Cancelled, KernelAssistantError, MissingError, SandboxError, UsageError, WorkerError
from kernel_assistant.worker.frames import PROTOCOL_VERSION, FrameError, read_frame, write_frame

BOOT = Path(__file__).resolve().parent.parent / "worker" / "boot.py"
START_SECONDS = 120.0
RELEASE_SECONDS = 10.0
MISSING_KINDS = ("torch_missing", "torch_too_old", "no_gpu")
OURS = ("internal", "unknown_method", "device_lost")
#: The status of a worker that was ended before there was a process.
NOT_STARTED = -signal.SIGKILL

Answers = queue.Queue[tuple[dict[str, Any], tuple[bytes, ...]] | None]


class Launched:
    """A worker that is being forked, or started as a program of its own where that cannot be done. Used like a
    `subprocess.Popen`: its pipes are there at once, for `pid` and `wait` there has to be a process. A thread has to
    call `settle`."""

    def __init__(self, python: str, env: dict[str, str], sink: IO[bytes], key: TemplateKey, idle: float) -> None:
        stdin, ours = os.pipe()
        theirs, stdout = os.pipe()
        self.stdin: IO[bytes] = os.fdopen(ours, "wb")
        self.stdout: IO[bytes] = os.fdopen(theirs, "rb")
        folder = os.open(".", os.O_PATH | os.O_CLOEXEC)
        self._order = Order(python, env, (stdin, stdout, os.dup(sink.fileno()), folder), key, idle)
        self._connection = connect(self._order)
        self._process: Forked | subprocess.Popen[bytes] | None = None
        self._settled, self._stop = threading.Event(), threading.Event()

    def settle(self) -> None:
        """Returns when there is a process, or will be none."""
        order = self._order
        try:
            self._process = fork(order, self._connection, self._stop)
            if self._process is None and not self._stop.is_set():
                stdin, stdout, stderr, folder = order.files
                self._process = _execute(order.python, order.env, stdin, stdout, stderr, f"/proc/self/fd/{folder}")
        except OSError as error:
            os.write(order.files[2], f"{order.python} could not be started: {error}\n".encode())
        finally:
            for file in order.files:
                os.close(file)
            self._settled.set()

    def stop(self) -> None:
        """Start nothing if nothing has been started until now."""
        self._stop.set()
        self._settled.wait()

    @property
    def pid(self) -> int:
        """Raises ProcessLookupError where there never was a process."""
        self._settled.wait()
        if self._process is None:
            raise ProcessLookupError("the worker was not started")
        return self._process.pid

    def poll(self) -> int | None:
        if not self._settled.is_set():
            return None
        return NOT_STARTED if self._process is None else self._process.poll()

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        until = time.monotonic() + (timeout or 0.0)
        if not self._settled.wait(timeout):
            raise subprocess.TimeoutExpired(self._order.python, timeout or 0.0)
        if self._process is None:
            return NOT_STARTED
        return self._process.wait(None if timeout is None else max(until - time.monotonic(), 0.0))


Process = subprocess.Popen[bytes] | Launched


class Worker:
    """One worker process. `call` may be used by one thread at a time; `kill` by any. Of `template_seconds`, see
    `worker_template.Order`."""

    def __init__(
        self,
        python: str,
        *,
        log: Path | None = None,
        env: dict[str, str] | None = None,
        measuring: dict[str, str] = MEASURING,
        template_seconds: float = float("inf"),
    ) -> None:
        self.python, self._log, self._env = python, log, {**measuring, **(env or {})}
        self._template_seconds = template_seconds
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
        env = {**os.environ, **self._env}
        key = key_of(self.python, env)
        try:
            with open(self._log or os.devnull, "ab") as sink:
                self.process: Process = (
                    _execute(self.python, env, subprocess.PIPE, subprocess.PIPE, sink.fileno())
                    if key is None
                    else Launched(self.python, env, sink, key, self._template_seconds)
                )
        except OSError as error:
            cause = f"{self.python} could not be started: {error}"
            raise MissingError(cause, "name another one with --python") from error
        # The thread gets its own process and queue: it may outlast them by a moment when the worker is started anew.
        reader = threading.Thread(target=_read, args=(self.process, self._answers), name="worker-reader", daemon=True)
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
        if isinstance(self.process, Launched):
            self.process.stop()
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


def _execute(
    python: str, env: dict[str, str], stdin: int, stdout: int, stderr: int, folder: str | None = None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [python, str(BOOT)], stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=folder, start_new_session=True
    )


def _read(process: Process, answers: Answers) -> None:
    if isinstance(process, Launched):
        process.settle()
    stream = process.stdout
    assert stream is not None
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
