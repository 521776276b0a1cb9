"""Our side of a worker, the process that runs the user's module: starts it under the user's interpreter, calls its
methods, and reports failures."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from kernel_assistant.environment import worker_log
from kernel_assistant.environment.measuring import MEASURING
from kernel_assistant.environment.template_key import TemplateKey, key_of
from kernel_assistant.environment.worker_template import ForkedWorker, WorkerOrder, connect, fork
from kernel_assistant.errors import Cancelled, KernelAssistantError, MissingError, SandboxError, UsageError, WorkerError
from kernel_assistant.worker.frames import PROTOCOL_VERSION, FrameError, read_frame, write_frame

BOOT = Path(__file__).resolve().parent.parent / "worker" / "boot.py"
START_SECONDS = 120.0
RELEASE_SECONDS = 10.0
MISSING_KINDS = ("torch_missing", "torch_too_old", "no_gpu")
OURS = ("internal", "unknown_method", "device_lost")
#: The exit status of a worker that was stopped before its process was started.
NOT_STARTED = -signal.SIGKILL

Answers = queue.Queue[tuple[dict[str, Any], tuple[bytes, ...]] | None]


class StartingWorker:
    """A worker that is being forked from a template process (one that has imported torch) or, if that fails, started as
    a program. It is used like a `subprocess.Popen`: its pipes exist at once; `pid` and `wait` wait for the process. A
    thread of the caller has to call `settle`, which starts the process."""

    def __init__(self, python: str, env: dict[str, str], sink: IO[bytes], key: TemplateKey, idle: float) -> None:
        stdin, ours = os.pipe()
        theirs, stdout = os.pipe()
        self.stdin: IO[bytes] = os.fdopen(ours, "wb")
        self.stdout: IO[bytes] = os.fdopen(theirs, "rb")
        folder = os.open(".", os.O_PATH | os.O_CLOEXEC)
        self._order = WorkerOrder(python, env, (stdin, stdout, os.dup(sink.fileno()), folder), key, idle)
        self._connection = connect(self._order)
        self._process: ForkedWorker | subprocess.Popen[bytes] | None = None
        self._settled, self._stop = threading.Event(), threading.Event()

    def settle(self) -> None:
        """Starts the process, and returns when it runs or could not be started."""
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
        """Prevents the start of the process, unless it has been started. Returns when it is certain whether there is a
        process."""
        self._stop.set()
        self._settled.wait()

    @property
    def pid(self) -> int:
        """The process number. Waits until the process is started; raises ProcessLookupError if it was not."""
        self._settled.wait()
        if self._process is None:
            raise ProcessLookupError("the worker was not started")
        return self._process.pid

    def poll(self) -> int | None:
        if not self._settled.is_set():
            return None
        return NOT_STARTED if self._process is None else self._process.poll()

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit status. Raises subprocess.TimeoutExpired after `timeout` seconds."""
        until = time.monotonic() + (timeout or 0.0)
        if not self._settled.wait(timeout):
            raise subprocess.TimeoutExpired(self._order.python, timeout or 0.0)
        if self._process is None:
            return NOT_STARTED
        return self._process.wait(None if timeout is None else max(until - time.monotonic(), 0.0))


Process = subprocess.Popen[bytes] | StartingWorker


class WorkerClient:
    """One worker process. `call` may be used by one thread at a time; `kill` by any thread. If a template process (from
    which workers are forked) is started for this worker, the template ends after it has had no worker for
    `template_seconds`."""

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
        #: A file failed while it was imported: what it had done until then is there still.
        self.half_imported = False
        self._next = 0
        self.hello: dict[str, Any] = {}
        #: The stage of opening a task in which it is or was last (worker/process/stages.py).
        self.stage = ""
        self._launch()

    def another(self) -> WorkerClient:
        """Starts another process with the same interpreter and environment. Returns its client without waiting for
        it."""
        return WorkerClient(
            self.python, log=self._log, env=self._env, measuring={}, template_seconds=self._template_seconds
        )

    def restart(self, cancel: threading.Event | None = None, seconds: float = START_SECONDS) -> None:
        """Kills the process, starts a new one in the same way and waits until it answers, at most `seconds`."""
        self.kill()
        self._launch()
        self.start(cancel, seconds)

    def _launch(self) -> None:
        self._answers: Answers = queue.Queue()
        env = {**os.environ, **self._env}
        key = key_of(self.python, env)
        ended = threading.Event()
        try:
            with open(self._log or os.devnull, "ab") as sink:
                worker_log.watch(sink, ended)
                self.process: Process = (
                    _execute(self.python, env, subprocess.PIPE, subprocess.PIPE, sink.fileno())
                    if key is None
                    else StartingWorker(self.python, env, sink, key, self._template_seconds)
                )
        except OSError as error:
            ended.set()
            cause = f"{self.python} could not be started: {error}"
            raise MissingError(cause, "name another one with --python") from error
        # The thread gets these objects as arguments, because it may still run for a moment after a restart.
        arguments = (self.process, self._answers, ended)
        reader = threading.Thread(target=_read, args=arguments, name="worker-reader", daemon=True)
        reader.start()

    def start(
        self,
        cancel: threading.Event | None = None,
        seconds: float = START_SECONDS,
        idle: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """Waits until the worker answers `hello`. Returns the answer, which has the versions of Python and torch.
        `idle` is called repeatedly meanwhile. Raises MissingError if the interpreter has no suitable torch."""
        self.hello = self.call("hello", {}, timeout=min(seconds, START_SECONDS), cancel=cancel, idle=idle)
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
        idle: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """Sends one request and returns the result. `idle` is called repeatedly while this waits.

        Raises UsageError, MissingError or WorkerError, depending on the answer. Cancellation (Cancelled) and a timeout
        kill the process, because user code may be stuck in it.
        """
        self._next += 1
        self.stage = ""
        self._send({"id": self._next, "method": method, "params": params}, blobs)
        message = self._wait(method, time.monotonic() + timeout, cancel, idle)
        if "error" in message:
            self.half_imported |= message["error"].get("kind") == "import_failed"
            raise failure(message["error"])
        return dict(message["result"])

    def kill(self) -> None:
        """Kills the process and everything that it started."""
        if isinstance(self.process, StartingWorker):
            self.process.stop()
        if self.alive:
            self._signal(signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                if stream:
                    stream.close()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pauses all processes of the worker during the `with` block, in which something else is measured."""
        self._signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def release(self) -> None:
        """Closes the task in the worker and keeps the process for the next task. A worker that fails to close the task
        is killed."""
        if self.alive:
            try:
                self.call("close_task", {}, timeout=RELEASE_SECONDS)
            except WorkerError:
                self.kill()

    def close(self) -> None:
        """Lets the worker free its memory and end; kills it after two seconds."""
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
            raise self._how_it_ended() from error

    def _wait(
        self, method: str, deadline: float, cancel: threading.Event | None, idle: Callable[[], None]
    ) -> dict[str, Any]:
        while True:
            try:
                frame = self._answers.get(timeout=0.05)
            except queue.Empty:
                if cancel is not None and cancel.is_set():
                    self.kill()
                    raise Cancelled(f"cancelled during {method}") from None
                if time.monotonic() > deadline:
                    self.kill()
                    raise WorkerTimeout(f"the worker did not answer {method} in time and was killed") from None
                idle()
                continue
            if frame is None:
                raise self._how_it_ended()
            if frame[0].get("id") != self._next:
                continue
            if "event" not in frame[0]:
                return frame[0]
            self.stage = str(frame[0]["event"].get("stage", ""))

    def _how_it_ended(self) -> WorkerError:
        try:
            code = self.process.wait(2)
        except subprocess.TimeoutExpired:
            self.kill()
            return WorkerError("the worker broke the protocol and was killed")
        if code < 0:
            name = signal.Signals(-code).name
            cause = f"the worker died of {name}" + (" (out of memory?)" if code == -signal.SIGKILL else "")
            return WorkerEnded(cause, code)
        return WorkerEnded(f"the worker ended with status {code}", code)


class WorkerTimeout(WorkerError):
    """The worker took too long for a request and was killed."""


class WorkerEnded(WorkerError):
    """The process has ended. `status` is the exit status as in `subprocess`: negative for a signal."""

    def __init__(self, cause: str, status: int) -> None:
        super().__init__(cause)
        self.status = status


def _execute(
    python: str, env: dict[str, str], stdin: int, stdout: int, stderr: int, folder: str | None = None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [python, str(BOOT)], stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=folder, start_new_session=True
    )


def _read(process: Process, answers: Answers, ended: threading.Event) -> None:
    stream = process.stdout
    assert stream is not None
    try:
        if isinstance(process, StartingWorker):
            process.settle()
            if process.poll() == NOT_STARTED:
                # A template that still imports torch holds the other end of the pipe: reading would wait for it, and
                # closing the stream for the reader.
                return
        while (frame := read_frame(stream)) is not None:
            answers.put(frame)
    except (FrameError, OSError, ValueError):
        pass  # the end of the stream is reported below, with the exit status of the process
    finally:
        ended.set()
        answers.put(None)


class DeviceLost(WorkerError):
    """The worker's CUDA context is broken, so that the worker must be restarted. `inputs` names the inputs with which
    the user's own module broke the context; "" if they are not known."""

    inputs = ""


class DeviceOutOfMemory(UsageError):
    """The device has too little free memory for the task: the task is too large, or other programs use the memory."""


def failure(error: dict[str, Any]) -> KernelAssistantError:
    """Returns the exception for `error`, the error part of a worker's answer (keys kind, message, next_step, detail).
    Its class says whether the user's module, the machine or this tool is the cause."""
    kind, message = error["kind"], error["message"]
    next_step, detail = error.get("next_step", ""), error.get("detail", "")
    if kind in MISSING_KINDS:
        return MissingError(message, next_step, detail=detail)
    if kind == "out_of_memory":
        return DeviceOutOfMemory(message, next_step, detail=detail)
    if kind == "device_lost":
        lost = DeviceLost(message, "the worker is started anew", detail=detail)
        lost.inputs = error.get("inputs", "")
        return lost
    if kind == "runner_failed":
        return SandboxError(message, "see kernel-assistant doctor; another sandbox: --sandbox landlock", detail=detail)
    if kind in OURS:
        return WorkerError(f"the worker failed: {message}", "please report this with the log", detail=detail)
    return UsageError(message, next_step, detail=detail)
