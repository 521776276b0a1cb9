"""Reads the stages of a training run that follows a recipe, from its folder (docs/training_recipes.md). The functions
read files: call them in threads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from kernel_assistant.errors import UsageError
from kernel_assistant.session.training_run import METRICS, RunStatus
from kernel_assistant.session.training_stages import (
    DONE,
    LOG,
    PROGRESS,
    RECIPE,
    StageDone,
    StageProgress,
    read_record,
    stage_folder,
)

StageRecord = TypeVar("StageRecord", StageDone, StageProgress)
#: Most bytes that are read from the end of a log.
_MOST_BYTES = 16 << 10


@dataclass(frozen=True)
class StageState:
    """The state of a stage. `state` is "waiting", "done", "limit" (ended at its time limit), "stopped", or the value
    of a `RunState`. `seconds` is the used part of the time `limit`, also in seconds. `folder` may not exist."""

    name: str
    state: str
    seconds: float
    limit: float
    folder: Path

    @property
    def begun(self) -> bool:
        return self.state != "waiting"


def is_pipeline(run: Path) -> bool:
    return bool(_recipe(run))


def read_stages(run: Path, status: RunStatus | None) -> tuple[StageState, ...]:
    """Return the stages in the order of the recipe; () for a run without a recipe."""
    return tuple(_stages(run, status))


def metrics_of(stage: Path) -> Path | None:
    """Returns the folder with the metrics file of a stage: the stage's folder or a subfolder; None if there is no
    metrics file."""
    if (stage / METRICS).is_file():
        return stage
    return next((path.parent for path in sorted(stage.glob(f"*/{METRICS}"))), None)


def log_lines(stage: Path) -> list[str]:
    """Returns the last lines (16 KiB at most) of a stage's log, which its processes have printed; [] if it cannot be
    read."""
    try:
        with (stage / LOG).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _MOST_BYTES))
            data = file.read()
    except OSError:
        return []
    lines = data.decode(errors="replace").splitlines()
    return lines[1:] if size > _MOST_BYTES else lines


def _stages(run: Path, status: RunStatus | None) -> Iterator[StageState]:
    for index, stage in enumerate(_recipe(run)):
        name = str(stage.get("name", ""))
        folder = stage_folder(run, index, name)
        done, progress = _record(folder / DONE, StageDone), _record(folder / PROGRESS, StageProgress)
        of_this = status is not None and status.stage == name
        if done is not None:
            state = "limit" if done.how == "limit" else "done"
        elif progress is None:
            state = "waiting"
        else:
            state = status.state.value if status is not None and of_this else "stopped"
        seconds, limit = (done or progress or StageProgress()).seconds, stage.get("limit")
        yield StageState(name, state, seconds, float(limit) if isinstance(limit, (int, float)) else 0.0, folder)


def _recipe(run: Path) -> list[dict[str, Any]]:
    """Return the stages of a run's recipe. [] for a run of one stage, whose run.json has only options."""
    try:
        parsed = json.loads((run / RECIPE).read_bytes())
    except (OSError, ValueError):
        return []
    stages = parsed.get("stage") if isinstance(parsed, dict) else None
    return [one for one in stages if isinstance(one, dict)] if isinstance(stages, list) else []


def _record(file: Path, kind: type[StageRecord]) -> StageRecord | None:
    try:
        return read_record(file, kind)
    except (OSError, UsageError):
        return None
