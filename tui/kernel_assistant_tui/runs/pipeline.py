"""A run of several stages, as its folder has them: docs/training_recipes.md. Reads files: for threads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_assistant.session.training_run import METRICS, RunStatus

_RECIPE, _PROGRESS, _DONE, _LOG = "run.json", "progress", "done", "output.log"
#: Of a log's end.
_MOST_BYTES = 16 << 10


@dataclass(frozen=True)
class StageState:
    """`state` is "waiting", "done", "limit" (ended at its limit), "stopped", or a `RunState`'s value; `seconds` so far,
    of `limit`. `folder` need not be there."""

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
    """In the recipe's order; () for a run of one stage."""
    return tuple(_stages(run, status))


def metrics_of(stage: Path) -> Path | None:
    """The folder that has a stage's figures: its own, or one inside it. None where it reports none."""
    if (stage / METRICS).is_file():
        return stage
    return next((path.parent for path in sorted(stage.glob(f"*/{METRICS}"))), None)


def log_lines(stage: Path) -> list[str]:
    """The end of what a stage's processes said."""
    try:
        with (stage / _LOG).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _MOST_BYTES))
            data = file.read()
    except OSError:
        return []
    lines = data.decode(errors="replace").splitlines()
    return lines[1:] if size > _MOST_BYTES else lines


def _stages(run: Path, status: RunStatus | None) -> Iterator[StageState]:
    for place, stage in enumerate(_recipe(run), start=1):
        name = str(stage.get("name", ""))
        folder = run / f"{place:02}-{name}"
        done, progress = _object(folder / _DONE), _object(folder / _PROGRESS)
        of_this = status is not None and status.stage == name
        if done is not None:
            state = "limit" if done.get("how") == "limit" else "done"
        elif progress is None:
            state = "waiting"
        else:
            state = status.state.value if status is not None and of_this else "stopped"
        seconds = _number((done or progress or {}).get("seconds"))
        yield StageState(name, state, seconds, _number(stage.get("limit")), folder)


def _recipe(run: Path) -> list[dict[str, Any]]:
    """Stages of a recipe; a single stage's run.json has options."""
    found = (_object(run / _RECIPE) or {}).get("stage")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _object(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
