"""The files of the stages of a training pipeline. The pipeline writes them; programs that watch the run read them
(docs/training_recipes.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from kernel_assistant.records import decode
from kernel_assistant.records.codec import Record

R = TypeVar("R", bound=Record)
RECIPE, DONE, PROGRESS, LOG = "run.json", "done", "progress", "output.log"
#: Metrics that are shown first, in this order: whether the stage learns, then how fast it is.
FIRST = (
    *("loss", "answer_loss", "reward", "held_out_reward", "pass_rate", "held_out_pass_rate", "faster_compile_rate"),
    *("held_out_faster_compile_rate", "answer_right", "policy_loss", "value_loss", "kl_reference", "kl_step"),
    *("entropy", "explained_variance", "tokens_per_s"),
)


class StageProgress(Record, frozen=True, kw_only=True):
    """Progress of a stage: its seconds and its number of starts so far, and how many bytes of its metrics have been
    copied to the metrics of the run."""

    seconds: float = 0.0
    starts: int = 0
    copied: int = 0


class StageDone(Record, frozen=True, kw_only=True):
    """Result of a finished stage. `how` is "ended", or "limit" if the time limit stopped it. `model` is the path of the
    trained model relative to the run's folder, "" without a model; `result` is the object at the end of the stage's
    output."""

    seconds: float
    starts: int
    how: str
    model: str = ""
    result: dict[str, Any] = {}


def stage_folder(run: Path, index: int, name: str) -> Path:
    """Returns the folder of a stage: its number `index`, counted from 0, and its name. The folder may not exist."""
    return run / f"{index + 1:02}-{name}"


def read_record(file: Path, kind: type[R]) -> R | None:
    """Reads the record `kind` from `file`, the file `DONE` or `PROGRESS` of a stage; None if there is no such file yet.
    Raises UsageError if the file is not valid."""
    return decode(file.read_bytes(), kind) if file.is_file() else None


def appended_lines(file: Path, start: int, most: int = -1) -> tuple[int, bytes]:
    """Reads the complete lines of a growing file from byte `start` on, at most `most` bytes (-1: all). Returns the
    offset of the first of these bytes, and the lines. The offset is 0 if the file has become shorter than `start`.
    Raises OSError."""
    with file.open("rb") as opened:
        start = start if opened.seek(0, 2) >= start else 0
        opened.seek(start)
        data = opened.read(most)
    return start, data[: data.rfind(b"\n") + 1]


def is_share(name: str) -> bool:
    """Whether a metric is a share from 0 to 1, by its name: docs/training_metrics.md."""
    return name == "answer_right" or (name.endswith(("_rate", "_share")) and name != "learning_rate")


def clock(seconds: float) -> str:
    """Formats seconds: 45 s, 12:07 or 1:02:07."""
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
