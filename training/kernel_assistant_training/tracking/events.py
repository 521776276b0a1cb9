"""A stage's figures as TensorBoard's events, by that package's own writer: docs/training_metrics.md."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernel_assistant.errors import MissingError, StoreError, UsageError, boundary

#: In the environment: "0" for none, "1" for events or an error; else where the package is installed.
SETTING = "KERNEL_ASSISTANT_TENSORBOARD"
FOLDER = "tensorboard"
#: Of the format, in each file's first event; readers decide by it how a restart is told.
VERSION = "brain.Event:2"


def wanted() -> bool:
    """Whether figures are to be written as events. Raises MissingError where they must and cannot, UsageError."""
    said = os.environ.get(SETTING, "")
    if said not in ("", "0", "1"):
        raise UsageError(f"{SETTING} is {said!r}", "use 0 or 1, or leave it out")
    installed = importlib.util.find_spec("tensorboard") is not None
    if said == "1" and not installed:
        raise MissingError("tensorboard is not installed", "pip install 'kernel-assistant[train]'")
    return installed and said != "0"


class Events:
    """Of one stage of a run, from its first figures on. Raises StoreError where they cannot be written.

    The package's `EventFileWriter` writes in a thread, which hears of a full disk later than the loop; this uses the
    writer of records below it.
    """

    def __init__(self, run: Path, stage: str) -> None:
        self._folder = run / FOLDER / stage
        self._records: Any = None

    def add(self, step: int, time: float, figures: Mapping[str, float]) -> None:
        """On the disk when this returns. What an earlier process wrote from `step` on counts no more. `time` in
        seconds since the epoch."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        found = [Event(wall_time=time, step=step, summary=Summary(value=values))]
        with boundary(StoreError, f"cannot write {self._folder}"):
            if self._records is None:
                self._records = self._opened(time)
                start = SessionLog(status=SessionLog.START)
                found[:0] = [
                    Event(wall_time=time, file_version=VERSION),
                    Event(wall_time=time, step=step, session_log=start),
                ]
            for event in found:
                self._records.write(event.SerializeToString())
            self._records.flush()

    def close(self) -> None:
        if self._records is not None:
            records, self._records = self._records, None
            # What a full disk did not take was an error when it was flushed.
            with contextlib.suppress(OSError):
                records.close()

    def _opened(self, time: float) -> Any:
        """A fresh file: readers take those of a folder in the order of their names."""
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time:017.6f}.{socket.gethostname()}.{os.getpid()}"
        return RecordWriter((self._folder / name).open("ab"))
