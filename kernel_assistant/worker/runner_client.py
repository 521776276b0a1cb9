"""The judge's end of a runner: starts it through the sandbox argv, talks to it, and names how it died."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import IO, Any

from .runner import wire
from .runner.libraries import find_libraries

DESCRIPTOR_TOKEN = "{fd}"
START_SECONDS = 60.0
EMPTY_SECONDS = 10.0
EMPTY_BLOCKS = 15
TICKET_BYTES = 8
#: Bytes of a runner's stderr that are kept, and how long is waited for the last of them.
MOST_WORDS, WORDS_SECONDS = 2048, 1.0


class CandidateFailure(Exception):
    """The candidate's doing. `outcome` is an Outcome value: crashed, hung, out_of_memory, incorrect, cheating."""

    def __init__(self, outcome: str, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.message = message


class RunnerStartError(RuntimeError):
    """No runner can be had: nothing of a candidate's doing, and no use in trying the next one."""


@dataclass(frozen=True)
class RunnerCommand:
    """How to start a runner: argv (one element contains `{fd}`), environment, target and device index."""

    argv: tuple[str, ...]
    env: dict[str, str]
    target: str
    device: int = 0


class LastWords:
    """The end of what a process writes into a pipe, which is emptied all the time.

    A process that warns at each call, as PyTorch does of an LSTM whose weights lie apart, stood still once 64 KiB of
    warnings were in it, and was called hung.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._kept = b""
        self._thread = threading.Thread(target=self._read, args=(stream,), name="last-words", daemon=True)
        self._thread.start()

    def text(self) -> str:
        """Of a process that has ended; a child of it may hold the pipe open."""
        self._thread.join(WORDS_SECONDS)
        return self._kept.decode(errors="replace")

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            while chunk := os.read(stream.fileno(), MOST_WORDS):
                self._kept = (self._kept + chunk)[-MOST_WORDS:]


class RunnerClient:
    """One runner process. Not thread-safe."""

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
        self._frozen: list[int] = []
        self._known: list[int] = []
        assert self.process.stderr is not None
        self._said = LastWords(self.process.stderr)
        # One that is gone already is told when it is waited for, with its last words.
        with contextlib.suppress(BrokenPipeError):
            wire.send(ours, {"target": command.target, "device": command.device, **_libraries(command.target)})

    def wait_ready(self) -> None:
        """Wait for the greeting. Raises RunnerStartError with the process's own words if it cannot start."""
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
        # Before anything of a candidate is loaded: a message that one could slow down would shorten all its times.
        # The shortest, because a busy machine only makes them longer.
        self.empty_seconds = min(self.timed_run(0, 0, EMPTY_SECONDS)[0] for _ in range(EMPTY_BLOCKS))

    def timed_run(self, first: int, count: int, timeout: float) -> tuple[float, dict[str, Any]]:
        """Wall seconds of one `run`, and its answer. The runner is stopped before and after: it works while it is
        asked and at no other time, so an answer that comes early finds its outputs unfinished. The time ends when
        those processes are told to stop that are known, so what is done after the answer until then counts."""
        self.thaw()
        began = time.perf_counter()
        answer = self.request({"op": "run", "first": first, "count": count}, timeout)
        self._stop_known()
        elapsed = time.perf_counter() - began
        self._stop_new()
        return elapsed, answer

    def freeze(self) -> None:
        """Stop the process and everything below it until `thaw` or the next request."""
        self._stop_known()
        self._stop_new()

    def _stop_known(self) -> None:
        self._frozen = self._known
        for wanted in self._known:
            _signal(wanted, signal.SIGSTOP)

    def _stop_new(self) -> None:
        """Looking for them takes longer than stopping those that are known, and they may start others meanwhile."""
        while fresh := [pid for pid in descendants(self.process.pid) if pid not in self._frozen]:
            for pid in fresh:
                _signal(pid, signal.SIGSTOP)
            self._frozen = [*self._frozen, *fresh]
        self._known = self._frozen

    def thaw(self) -> None:
        """Let it run again."""
        for pid in reversed(self._frozen):
            _signal(pid, signal.SIGCONT)
        self._frozen = []

    def request(self, message: dict[str, Any], timeout: float, descriptors: tuple[int, ...] = ()) -> dict[str, Any]:
        """Send one operation and wait. Raises CandidateFailure if the runner crashes, hangs, reports a failure or gives
        an answer without this request's ticket: it was written before the request was read.
        """
        self.wait_ready()
        if self._frozen:
            self.thaw()
        self.socket.settimeout(timeout)
        ticket = secrets.token_hex(TICKET_BYTES)
        try:
            wire.send(self.socket, {**message, wire.TICKET: ticket}, descriptors)
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
        """The end of its stderr, on one line."""
        if self.process.poll() is None:
            self.kill()
        lines = self._said.text().strip().splitlines()
        return lines[-1][:300] if lines else ""

    def threads(self) -> int:
        """Threads of the process and everything below it."""
        return sum(_thread_count(pid) for pid in descendants(self.process.pid))

    def kill(self) -> None:
        """End the process and all its children (its sandbox dies with it)."""
        if self.process.poll() is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait()
        self.socket.close()

    def close(self) -> None:
        """Ask it to end, insist after a moment."""
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
    """`pid` and all processes below it that are still there."""
    found = [pid]
    for parent in found:
        try:
            for task in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{task}/children", encoding="ascii") as file:
                    found += [int(child) for child in file.read().split()]
        except OSError:
            continue
    return found


def _libraries(target: str) -> dict[str, dict[str, Any]]:
    """What a runner must know to call the libraries of PyTorch, which it does not have."""
    if target == "cpu":
        return {"libraries": {}, "tf32": {}}
    from .applied.precision import tf32_flags

    return {"libraries": find_libraries(), "tf32": tf32_flags()}


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it ended, or was never ours to stop
        os.kill(pid, number)


def _thread_count(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0
