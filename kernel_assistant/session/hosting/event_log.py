"""The append-only log of one job, which can be followed while it grows."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path

import msgspec

from kernel_assistant.errors import StoreError
from kernel_assistant.events import (
    AnyEvent,
    BestImproved,
    JobFailed,
    JobFinished,
    JobQueued,
    JobStarted,
    decode_event,
    encode_event,
)

#: Events that must survive a power cut. Of the others, the last seconds may be lost.
_IMPORTANT = (JobQueued, JobStarted, BestImproved, JobFinished, JobFailed)
FINAL = (JobFinished, JobFailed)
#: Seconds between two questions whether a reader has gone.
_POLL_S = 0.5


class EventLog:
    """The events of one job in order, on disk and in memory.

    If the disk is full, the log continues in memory only, so that watchers still see how the job ended; the file then
    lacks the last events, and those that it has are valid.
    """

    def __init__(self, path: Path, job: str) -> None:
        self.job = job
        self._path = path
        self._changed = threading.Condition()
        self._file: FileIO | None = None
        self._lines: list[bytes] = _sound_lines(path)
        self._broken = False
        self._seq = decode_event(self._lines[-1]).seq if self._lines else 0
        self.ended = bool(self._lines) and isinstance(decode_event(self._lines[-1]), FINAL)

    def append(self, event: AnyEvent) -> AnyEvent:
        """Sets the number, job and time of `event`, writes it to the log and returns it. Raises StoreError the first
        time that writing fails."""
        with self._changed:
            self._seq += 1
            event = msgspec.structs.replace(event, seq=self._seq, job=self.job, time=time.time())
            line = encode_event(event)
            self._lines.append(line)
            self.ended = isinstance(event, FINAL)
            self._changed.notify_all()
            if not self._broken:
                self._write(line, sync=isinstance(event, _IMPORTANT))
            if self.ended:
                self._close()
        return event

    def follow(self, from_seq: int, give_up: Callable[[], bool]) -> Iterator[bytes]:
        """Yields the events with a number `seq` ≥ `from_seq`, encoded as JSON: first the recorded ones, then new ones
        as they come, until the job has ended or `give_up()` returns True."""
        position = 0
        while True:
            with self._changed:
                if position == len(self._lines) and not self.ended:
                    self._changed.wait(_POLL_S)
                ready, ended = self._lines[position:], self.ended
                position += len(ready)
            yield from (line for line in ready if decode_event(line).seq >= from_seq)
            if (ended and position == len(self._lines)) or give_up():
                return

    def _write(self, line: bytes, *, sync: bool) -> None:
        try:
            if self._file is None:
                self._file = _open_at_end(self._path, self._lines[:-1])
            if self._file.write(line + b"\n") != len(line) + 1:
                raise OSError(errno.ENOSPC, "the file system took only a part")
            if sync:
                os.fsync(self._file.fileno())
        except OSError as error:
            self._broken = True
            raise StoreError(
                f"cannot write the event log {self._path}: {error.strerror}", "free disk space, then attach to the job"
            ) from error

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def log_path(jobs_dir: Path, job: str) -> Path:
    return jobs_dir / job / "events.jsonl"


def recorded_events(path: Path) -> tuple[AnyEvent, ...]:
    """Reads the events of a job from the log file `path`, for which no host is needed; () if there is no file. Raises
    StoreError if the file cannot be read."""
    return tuple(decode_event(line) for line in _sound_lines(path))


def _open_at_end(path: Path, lines: list[bytes]) -> FileIO:
    """Opens the file for appending, and first truncates it to the valid `lines`: a host that crashed may have left an
    incomplete last line."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = FileIO(path, "ab")
    file.truncate(sum(len(line) + 1 for line in lines))
    return file


def _sound_lines(path: Path) -> list[bytes]:
    """Returns the lines of a log file up to the first line that cannot be decoded; an empty list if there is no file.
    Raises StoreError if the file cannot be read."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(
            f"cannot read the event log {path}: {error.strerror}", "make the state folder readable"
        ) from error
    lines: list[bytes] = []
    for line in data.split(b"\n")[:-1]:
        try:
            decode_event(line)
        except msgspec.DecodeError:
            break
        lines.append(line)
    return lines
