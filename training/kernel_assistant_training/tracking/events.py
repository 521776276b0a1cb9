"""Writes a stage's metrics as TensorBoard events, with tensorboard's own writer: docs/training_metrics.md."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kernel_assistant.errors import MissingError, StoreError, UsageError, boundary

#: Environment variable: "0" for no events, "1" for events or an error; otherwise events if the package is installed.
SETTING = "KERNEL_ASSISTANT_TENSORBOARD"
FOLDER = "tensorboard"
#: Questions about a run, and the figures that answer each: TensorBoard shows the charts of a question together.
QUESTIONS = {
    "reward": "(best_)?reward",
    "right": "[a-z_]*pass_rate",
    "fast": "faster_[a-z]+_rate",
    "loss": "[a-z_]*loss|answer_right|[a-z_]*gradient_norm|rate|learning_rate",
    "policy": "kl_[a-z]+|entropy|clipped_share|ratio_[a-z_]+",
    "critic": "[a-z_]*explained_variance|value_mean|return_mean",
    "episodes": "episodes|(episode|ended)_[a-z_]+|loop_share|schema_share|void_rate",
    "data": "tasks|tasks_refused|rows|kept|kept_rate|curriculum_operators|left_out_[a-z_]+",
    "time": "[a-z_]*seconds|[a-z_]+_per_(s|min)",
}


def tag(figure: str) -> str:
    """Returns the name of a metric in TensorBoard, QUESTION/METRIC; QUESTION groups charts, "other" if none fits. A
    metric on held-out tasks belongs to the same question as the metric on training tasks."""
    name = figure.removeprefix("held_out_")
    return next((one for one, names in QUESTIONS.items() if re.fullmatch(names, name)), "other") + f"/{figure}"


def wanted() -> bool:
    """Whether metrics are written as events, by the environment variable SETTING. Raises MissingError if events are
    required but tensorboard is not installed, UsageError for an invalid setting."""
    setting = os.environ.get(SETTING, "")
    if setting not in ("", "0", "1"):
        raise UsageError(f"{SETTING} is {setting!r}", "use 0 or 1, or leave it out")
    installed = importlib.util.find_spec("tensorboard") is not None
    if setting == "1" and not installed:
        raise MissingError("tensorboard is not installed", "pip install 'kernel-assistant[train]'")
    return installed and setting != "0"


class Events:
    """Writes the TensorBoard events of one stage of a run. The file is created with the first metrics."""

    def __init__(self, run: Path, stage: str) -> None:
        self._folder = run / FOLDER / stage
        self._writer: Any = None

    def add(self, step: int, time: float, figures: Mapping[str, float]) -> None:
        """Writes the metrics of a step and flushes them to disk. `time` is in seconds since the epoch. Readers ignore
        events that an earlier process wrote for this step or later steps. Raises StoreError if the file cannot be
        written."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        with boundary(StoreError, f"cannot write {self._folder}"):
            if self._writer is None:
                self._writer = EventFileWriter(str(self._folder))
                start = SessionLog(status=SessionLog.START)
                self._writer.add_event(Event(wall_time=time, step=step, session_log=start))
            values = [Summary.Value(tag=tag(name), simple_value=value) for name, value in figures.items()]
            self._writer.add_event(Event(wall_time=time, step=step, summary=Summary(value=values)))
            # The package writes in a thread; `flush` waits for it and raises its error.
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            # An error of a full disk was raised by `flush` already.
            with suppress(OSError):
                self._writer.close()
