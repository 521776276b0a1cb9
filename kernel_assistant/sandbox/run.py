"""Runs one command in a sandbox until it ends, exceeds its time limit or is cancelled, and leaves no process behind."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

from kernel_assistant.errors import SandboxError
from kernel_assistant.sandbox import tree
from kernel_assistant.sandbox.contract import Sandbox, SandboxLimits, SandboxSpec
from kernel_assistant.sandbox.launcher import EXIT_SETUP

CHECK_EVERY = 0.05  # seconds
CHUNK = 1 << 16


@dataclass(frozen=True)
class Completed:
    """How a command ended. `returncode` is 128 + n for signal n, in every backend. `exceeded` says for which limit of
    the whole process tree the command was killed, "processes" or "memory", else "". `stdout` and `stderr` have up to
    `max_output` bytes each; `truncated` says whether there was more."""

    returncode: int
    stdout: bytes
    stderr: bytes
    timed_out: bool
    cancelled: bool
    truncated: bool
    exceeded: str
    seconds: float


@dataclass
class _Pipe:
    """The child's stdout or stderr, of which `limit` bytes are kept. Data after these is read too, so that the child
    does not block, but is dropped."""

    stream: IO[bytes]
    limit: int
    kept: bytearray = field(default_factory=bytearray)
    truncated: bool = False

    def read(self) -> bool:
        """Reads the available data. Returns False at the end of the stream, else True."""
        data = os.read(self.stream.fileno(), CHUNK)
        room = self.limit - len(self.kept)
        self.kept += data[:room]
        self.truncated |= len(data) > room
        return bool(data)


def run(
    sandbox: Sandbox,
    spec: SandboxSpec,
    *,
    timeout: float,
    stdin: bytes | None = None,
    pass_fds: Sequence[int] = (),
    max_output: int = 1 << 20,
    cancel: threading.Event | None = None,
    started: Callable[[int], None] | None = None,
) -> Completed:
    """Runs `spec` in the sandbox for at most `timeout` seconds. `started` is called with the process id of the
    outermost process; `max_output` is the number of bytes kept of each output stream.

    Raises SandboxError if the sandbox could not be set up. A failure of the command itself is in the result.
    """
    command = sandbox.command(spec)
    began = time.monotonic()
    process = _spawn(command.argv, command.env, stdin is not None, pass_fds)
    try:
        if started is not None:
            started(process.pid)
        return _Watch(process, spec.limits, began + timeout, cancel, max_output, stdin or b"").finish(began)
    finally:
        kill_tree(process)


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kills a process that was started from a `SandboxCommand`, and all its descendants, and reaps it. A process that
    has ended is only reaped."""
    if process.poll() is None:
        tree.kill_below(process.pid)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(BrokenPipeError):
                stream.close()


def _spawn(argv: Sequence[str], env: dict[str, str], feed: bool, pass_fds: Sequence[int]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.PIPE if feed else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=pass_fds,
            start_new_session=True,
            bufsize=0,
        )
    except OSError as error:
        raise SandboxError(f"{argv[0]} could not be started: {error}", "run kernel-assistant doctor") from error


class _Watch:
    """Copies data to and from the process until it and its streams have ended. Meanwhile checks the time limit, the
    cancel event and the limits of the process tree."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        limits: SandboxLimits,
        deadline: float,
        cancel: threading.Event | None,
        max_output: int,
        stdin: bytes,
    ) -> None:
        assert process.stdout is not None and process.stderr is not None
        self.process, self.limits, self.deadline, self.cancel, self.stdin = process, limits, deadline, cancel, stdin
        self.out, self.err = _Pipe(process.stdout, max_output), _Pipe(process.stderr, max_output)
        self.timed_out = self.cancelled = False
        self.exceeded = ""
        self.checked = 0.0

    def finish(self, began: float) -> Completed:
        with selectors.DefaultSelector() as selector:
            self._register(selector)
            while selector.get_map() and not self._must_stop():
                for key, _ in selector.select(CHECK_EVERY):
                    self._move(selector, key)
                if self.process.poll() is not None and self._all_quiet(selector):
                    break
        while self.process.poll() is None and not self._must_stop():
            time.sleep(CHECK_EVERY / 10)
        kill_tree(self.process)
        return self._completed(time.monotonic() - began)

    def _register(self, selector: selectors.BaseSelector) -> None:
        selector.register(self.out.stream, selectors.EVENT_READ, self.out)
        selector.register(self.err.stream, selectors.EVENT_READ, self.err)
        if self.process.stdin is not None:
            os.set_blocking(self.process.stdin.fileno(), False)
            selector.register(self.process.stdin, selectors.EVENT_WRITE, None)

    def _move(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        going_on = key.data.read() if key.data is not None else self._feed()
        if not going_on:
            selector.unregister(key.fileobj)

    def _feed(self) -> bool:
        """Writes as much to stdin as the pipe takes. Returns whether more is to be written; stdin is closed after the
        last byte."""
        assert self.process.stdin is not None
        with suppress(BlockingIOError, BrokenPipeError):
            self.stdin = self.stdin[os.write(self.process.stdin.fileno(), self.stdin[:CHUNK]) :]
            if self.stdin:
                return True
            self.process.stdin.close()
            return False
        return self.process.poll() is None

    def _all_quiet(self, selector: selectors.BaseSelector) -> bool:
        """Whether no pipe has data to read. Used after the process has ended, because another process may hold the
        pipes open."""
        return not any(key.data is not None for key, _ in selector.select(0))

    def _must_stop(self) -> bool:
        now = time.monotonic()
        self.timed_out = self.timed_out or now >= self.deadline
        self.cancelled = self.cancelled or (self.cancel is not None and self.cancel.is_set())
        if now - self.checked >= CHECK_EVERY and not self.exceeded:
            self.checked = now
            tasks, memory = tree.tasks_and_memory(self.process.pid)
            allowed = self.limits.memory_bytes + self.limits.shared_bytes
            self.exceeded = "processes" if tasks > self.limits.processes else "memory" if memory > allowed else ""
        return self.timed_out or self.cancelled or bool(self.exceeded)

    def _completed(self, seconds: float) -> Completed:
        code = self.process.returncode
        stderr = bytes(self.err.kept)
        if code == EXIT_SETUP and stderr.startswith(b"sandbox: "):
            raise SandboxError(stderr.decode(errors="replace").strip(), "run kernel-assistant doctor")
        return Completed(
            returncode=code if code >= 0 else 128 - code,
            stdout=bytes(self.out.kept),
            stderr=stderr,
            timed_out=self.timed_out,
            cancelled=self.cancelled,
            truncated=self.out.truncated or self.err.truncated,
            exceeded=self.exceeded,
            seconds=seconds,
        )
