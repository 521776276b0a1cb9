"""The judge's side of the connection to a runner: starts the runner in the sandbox, sends requests to it, and reports
how it failed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

from ..runner import wire
from ..runner.libraries import find_libraries
from ..runner.operations.kept_algorithms import kept_file, read
from .starvation import Waited, longest_wait, waited_for_processor

DESCRIPTOR_TOKEN = "{fd}"
START_SECONDS = 60.0
EMPTY_SECONDS = 10.0
EMPTY_BLOCKS = 15
#: Bytes that are written to empty the cache, and messages after that.
COLD_BYTES, COLD_MESSAGES = 128 << 20, 3
_cold_times: list[float] = []
#: A request of a runner that waits for a processor may take this many times its timeout at most.
MOST_PATIENCE = 10
TICKET_BYTES = 8
#: Bytes of a runner's stderr that are kept, and seconds to wait for the last of them.
MOST_WORDS, WORDS_SECONDS = 2048, 1.0


class CandidateFailure(Exception):
    """A failure of the candidate. `outcome` is the outcome of the evaluation: crashed, hung, out_of_memory, incorrect
    or cheating."""

    def __init__(self, outcome: str, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.message = message


class RunnerStartError(RuntimeError):
    """Raised if a runner cannot be started. That is no fault of the candidate, and the next candidate will fail as
    well."""


@dataclass(frozen=True)
class RunnerCommand:
    """How to start a runner: `argv` (`{fd}` in one element stands for its socket's descriptor), the complete
    environment `env`, `target` ("cuda" or "cpu") and the index of the `device`."""

    argv: tuple[str, ...]
    env: dict[str, str]
    target: str
    device: int = 0


class OutputTail:
    """Reads, in a thread, a pipe to which a process writes, and keeps the end of the text.

    Without that, a process that warns at each call, as PyTorch does for an LSTM with scattered weights, would block
    once 64 KiB of warnings fill the pipe, and count as hung.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._kept = b""
        self._thread = threading.Thread(target=self._read, args=(stream,), name="last-words", daemon=True)
        self._thread.start()

    def text(self) -> str:
        """Returns the end of the text that a process has written to the pipe (at most 2048 bytes). The process must
        have ended; if a child of it still has the pipe open, the wait for the end of the text is limited to a
        second."""
        self._thread.join(WORDS_SECONDS)
        return self._kept.decode(errors="replace")

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            while chunk := os.read(stream.fileno(), MOST_WORDS):
                self._kept = (self._kept + chunk)[-MOST_WORDS:]


class RunnerClient:
    """One runner process and the connection to it. The constructor starts the process, `wait_ready` waits until it can
    be used. Not thread-safe."""

    def __init__(self, command: RunnerCommand) -> None:
        self.command = command
        ours, theirs = socket.socketpair()
        descriptor = theirs.fileno()
        argv = [part.replace(DESCRIPTOR_TOKEN, str(descriptor)) for part in command.argv]
        self.process = subprocess.Popen(
            argv,
            env=command.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(descriptor,),
            start_new_session=True,
        )
        theirs.close()
        self.socket = ours
        self.ready = False
        self.empty_seconds = 0.0
        #: Whether empty messages were timed while nobody else used the device.
        self.timed_alone = False
        #: What the process has mapped, by the name of the arena.
        self.mapped: dict[str, object] = {}
        self.empty_processor_seconds = self.cold_processor_seconds = 0.0
        self._frozen: list[int] = []
        self._known: list[int] = []
        assert self.process.stderr is not None
        self._output_tail = OutputTail(self.process.stderr)
        # If the process has ended already, `wait_ready` reports it with its last output.
        with contextlib.suppress(BrokenPipeError):
            wire.send(ours, {"target": command.target, "device": command.device, **_libraries(command.target)})

    def wait_ready(self) -> None:
        """Waits for the runner's first message, and times empty messages (requests without a call). Raises
        RunnerStartError with the process's last output if it cannot start. Does nothing if the runner is ready."""
        if self.ready:
            return
        self.socket.settimeout(START_SECONDS)
        try:
            answer, _ = wire.receive(self.socket)
        except (OSError, wire.WireClosed) as error:
            raise RunnerStartError(f"the runner did not start: {self.last_words() or error}") from error
        if not answer.get("ok"):
            raise RunnerStartError(f"the runner did not start: {answer.get('message')}")
        self.ready = True
        self.freeze()
        # Before a candidate is loaded, which could slow down empty messages and so shorten all its times.
        began = self.processor_seconds()
        self.empty_seconds = min(self.timed_run(0, 0, EMPTY_SECONDS)[0] for _ in range(EMPTY_BLOCKS))
        self.empty_processor_seconds = (self.processor_seconds() - began) / EMPTY_BLOCKS
        if self.command.target == "cpu":
            self.cold_processor_seconds = self._cold_processor_seconds()

    def _cold_processor_seconds(self) -> float:
        """Returns the processor time in seconds that a runner without a candidate needs to answer an empty message
        after its code was evicted from the cache: the median of three, measured once in a worker."""
        if not _cold_times:
            memory = bytearray(COLD_BYTES)
            for value in range(COLD_MESSAGES):
                ctypes.memset((ctypes.c_char * COLD_BYTES).from_buffer(memory), value, COLD_BYTES)
                began = self.processor_seconds()
                self.timed_run(0, 0, EMPTY_SECONDS)
                _cold_times.append(self.processor_seconds() - began)
        return sorted(_cold_times)[COLD_MESSAGES // 2]

    def empty_run(self, timeout: float) -> None:
        """Times an empty message, a request without a call; `empty_seconds` is the shortest time so far. Other work can
        only lengthen it. A candidate can too, but does not gain by that."""
        self.empty_seconds = min(self.timed_run(0, 0, timeout)[0], self.empty_seconds)

    def timed_run(
        self, first: int, count: int, timeout: float, answered: Callable[[], None] | None = None
    ) -> tuple[float, dict[str, Any]]:
        """Times one request to run `count` calls that begin with set number `first`; returns as `timed_request`
        does."""
        return self.timed_request({"op": "run", "first": first, "count": count}, timeout, answered)

    def timed_request(
        self, message: dict[str, Any], timeout: float, answered: Callable[[], None] | None = None
    ) -> tuple[float, dict[str, Any]]:
        """Returns the wall seconds of one request, and its answer. The runner is stopped before and after, so that it
        works only during the request, and an early answer means unfinished outputs. The time runs from the signals that
        let the runner continue to those that stop it, so that work before the request and after the answer counts.
        `answered` is called as soon as the time has been taken. Raises CandidateFailure; `timeout` is in seconds."""
        before = self._waited()
        began = time.perf_counter()
        self.thaw()
        answer = self.request(message, timeout, before=before)
        self._stop_known()
        elapsed = time.perf_counter() - began
        if answered is not None:
            answered()
        self._stop_new()
        return elapsed, answer

    def rest(self, seconds: float) -> None:
        """Lets the process run for `seconds` without a request, so that idle threads that still spin for work fall
        asleep; then stops it again."""
        self.thaw()
        time.sleep(seconds)
        self.freeze()

    def processor_seconds(self) -> float:
        """Returns the processor time in seconds of the process and its descendants that were found when it was last
        stopped. The system counts it, and other work does not add to it."""
        return sum(_processor_seconds(pid) for pid in self._known)

    def freeze(self) -> None:
        """Stops (SIGSTOP) the process and all its descendants until `thaw` or the next request."""
        self._stop_known()
        self._stop_new()

    def _stop_known(self) -> None:
        self._frozen = self._known
        for wanted in self._known:
            _signal(wanted, signal.SIGSTOP)

    def _stop_new(self) -> None:
        """Stops (SIGSTOP) those descendants of the process that are not stopped yet, until no new ones appear: while
        they are being listed, those that still run may start others."""
        while fresh := [pid for pid in descendants(self.process.pid) if pid not in self._frozen]:
            for pid in fresh:
                _signal(pid, signal.SIGSTOP)
            self._frozen = [*self._frozen, *fresh]
        self._known = self._frozen

    def thaw(self) -> None:
        """Lets the stopped processes continue (SIGCONT)."""
        for pid in reversed(self._frozen):
            _signal(pid, signal.SIGCONT)
        self._frozen = []

    def request(
        self,
        message: dict[str, Any],
        timeout: float,
        descriptors: tuple[int, ...] = (),
        *,
        before: Waited | None = None,
    ) -> dict[str, Any]:
        """Sends one request and returns the answer; `descriptors` are sent with it, `timeout` is in seconds. Raises
        CandidateFailure if the runner crashes, hangs, reports a failure, or answers without this request's ticket (a
        random text): then it wrote the answer before it read the request. The timeout does not include time in which
        other work kept the runner from a processor, counted from `before` (default: now)."""
        self.wait_ready()
        before = self._waited() if before is None else before
        if self._frozen:
            self.thaw()
        self.socket.settimeout(timeout)
        ticket = secrets.token_hex(TICKET_BYTES)
        try:
            wire.send(self.socket, {**message, wire.TICKET: ticket}, descriptors)
            self._wait_for_answer(timeout, before)
            answer, unasked = wire.receive(self.socket)
        except TimeoutError as error:
            self.kill()
            raise CandidateFailure("hung", f"no answer within {timeout:.0f} s; killed") from error
        except (OSError, wire.WireClosed) as error:
            raise CandidateFailure(*self._death()) from error
        for descriptor in unasked:
            os.close(descriptor)
        if answer.get(wire.TICKET) != ticket:
            self.kill()
            raise CandidateFailure("cheating", "answered before it was asked")
        if answer.get("ok") is not True:
            if answer.get("sticky", True):
                self.kill()
            kind = answer.get("kind")
            outcome = kind if kind in ("crashed", "out_of_memory", "incorrect") else "crashed"
            raise CandidateFailure(outcome, str(answer.get("message", "the runner failed"))[:500])
        return answer

    def _waited(self) -> Waited:
        return waited_for_processor(self._known or descendants(self.process.pid))

    def _wait_for_answer(self, timeout: float, before: Waited) -> None:
        """Waits until an answer can be read. Raises TimeoutError if there is none after `timeout` seconds, which do not
        include the time since `before` in which the runner waited for a processor."""
        began, left = time.monotonic(), timeout
        answer = select.poll()
        answer.register(self.socket, select.POLLIN)
        while not answer.poll(left * 1e3):
            others = longest_wait(before, waited_for_processor(descendants(self.process.pid)))
            left = min(timeout + others, MOST_PATIENCE * timeout) - (time.monotonic() - began)
            if left <= 0:
                raise TimeoutError

    def _death(self) -> tuple[str, str]:
        words = ""
        try:
            code = self.process.wait(5)
            words = self.last_words()
        except subprocess.TimeoutExpired:
            self.kill()
            return "crashed", "the runner closed its socket"
        number = -code if code < 0 else code - 128 if code > 128 else 0
        if number == signal.SIGKILL or "MemoryError" in words:
            return "out_of_memory", "the runner was killed: out of memory"
        if number in signal.Signals.__members__.values():
            return "crashed", f"the runner died of {signal.Signals(number).name}"
        return "crashed", f"the runner ended with status {code} {words}".strip()

    def last_words(self) -> str:
        """Returns the last line that the process wrote to stderr; "" if there is none. Kills the process first if it
        still runs."""
        if self.process.poll() is None:
            self.kill()
        lines = self._output_tail.text().strip().splitlines()
        return lines[-1][:300] if lines else ""

    def threads(self) -> int:
        """Returns the number of threads of the process and all its descendants."""
        return sum(_thread_count(pid) for pid in descendants(self.process.pid))

    def kill(self) -> None:
        """Kills the process and all its children (its sandbox dies with it), and closes the socket."""
        if self.process.poll() is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait()
        self.socket.close()

    def close(self) -> None:
        """Asks the process to end, and kills it if it has not ended after 0.2 seconds."""
        self.thaw()
        try:
            wire.send(self.socket, {"op": "exit"})
            deadline = time.monotonic() + 0.2
            while self.process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.002)
        except OSError:
            pass
        self.kill()


def descendants(pid: int) -> list[int]:
    """Returns the process ids of `pid` and of all its living descendants."""
    pids = [pid]
    for parent in pids:
        try:
            for task in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{task}/children", encoding="ascii") as file:
                    pids += [int(child) for child in file.read().split()]
        except OSError:
            continue
    return pids


def _libraries(target: str) -> dict[str, dict[str, Any]]:
    """Returns what a runner without PyTorch needs to call the same libraries: their paths (`libraries`), PyTorch's
    settings (`flags`) and the `algorithms` that were chosen earlier; all empty on the CPU."""
    if target == "cpu":
        return {"libraries": {}, "flags": {}, "algorithms": {}}
    from ..applied.precision import library_flags

    return {
        "libraries": find_libraries(),
        "flags": library_flags(),
        "algorithms": read(kept_file()),
    }


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # the process has ended, or belongs to another user
        os.kill(pid, number)


def _processor_seconds(pid: int) -> float:
    """Returns the processor time in seconds of all threads of a process; 0 if it has ended."""
    try:
        # The clock that clock_getcpuclockid names (the kernel's include/linux/posix-timers.h).
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def _thread_count(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0
