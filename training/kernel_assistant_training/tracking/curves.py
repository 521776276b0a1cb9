"""A run's figures over its steps, read from what its stages wrote."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_assistant.session.training_run import METRICS
from kernel_assistant_training.tracking.events import FOLDER

Numbers = NDArray[np.float64]
#: What `train eval` appends to; `checkpoint` is the number of each line's checkpoint.
EVALUATED = "evaluations_held_out.jsonl"
#: Folders below a stage's in which a part of it may have its own figures (the fine-tuning of `rft`).
DEEPEST = 2
_AROUND = frozenset({"stage", "step", "time"})


@dataclass(frozen=True)
class Curve:
    """`low` and `high` bound what several runs have; of one run they are its values."""

    steps: Numbers
    values: Numbers
    low: Numbers
    high: Numbers

    @classmethod
    def of(cls, steps: Sequence[float], values: Sequence[float]) -> Curve:
        found = np.asarray(values, float)
        return cls(np.asarray(steps, float), found, found, found)


@dataclass(frozen=True)
class Stage:
    """Figures of one stage under `name`. `curves` by figure, over the step; `times` are seconds since the epoch."""

    name: str
    curves: Mapping[str, Curve]
    times: Curve


def read_stages(run: Path) -> list[Stage]:
    """Of a stage's folder and what lies in it, in the order in which they began. A step that was written again counts
    with its later line; lines that are cut off, or without stage, step and time, are left out."""
    found: list[Stage] = []
    for file in sorted(run.rglob(METRICS)):
        inside = file.parent.relative_to(run).parts
        if len(inside) <= DEEPEST and FOLDER not in inside:
            found += _read(file)
    return sorted(found, key=lambda stage: float(stage.times.values[0]))


def read_evaluated(run: Path) -> Stage | None:
    """What `train eval` found, over the checkpoints' numbers; a checkpoint that was evaluated again counts with its
    later line."""
    rows = {float(one["checkpoint"]): one for one in _lines(run / EVALUATED) if "checkpoint" in one}
    if not rows:
        return None
    return _stage("evaluations", rows)


def together(runs: Sequence[Stage]) -> Stage:
    """Mean and range of several runs of a stage, of the figures and over the steps that all have. A run that did not
    report at a step of another counts with what lies on the line between its neighbours."""
    names = [name for name in runs[0].curves if all(name in run.curves for run in runs)]
    curves = {name: _mean([run.curves[name] for run in runs]) for name in names}
    shared = {name: curve for name, curve in curves.items() if curve.steps.size}
    return Stage(runs[0].name, shared, runs[0].times)


def _mean(curves: Sequence[Curve]) -> Curve:
    first, last = max(one.steps[0] for one in curves), min(one.steps[-1] for one in curves)
    steps = np.unique(np.concatenate([one.steps for one in curves]))
    steps = steps[(steps >= first) & (steps <= last)]
    values = np.stack([np.interp(steps, one.steps, one.values) for one in curves])
    return Curve(steps, values.mean(0), values.min(0), values.max(0))


def _read(file: Path) -> Iterator[Stage]:
    by_stage: dict[str, dict[float, dict[str, Any]]] = {}
    for line in _lines(file):
        if isinstance(line.get("step"), (int, float)) and isinstance(line.get("time"), (int, float)):
            by_stage.setdefault(str(line.get("stage", "")), {})[float(line["step"])] = line
    return (_stage(name, rows) for name, rows in by_stage.items() if name)


def _stage(name: str, rows: Mapping[float, Mapping[str, Any]]) -> Stage:
    points: dict[str, tuple[list[float], list[float]]] = {}
    for step in sorted(rows):
        for figure, value in rows[step].items():
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if number and figure not in _AROUND and math.isfinite(value):
                steps, values = points.setdefault(figure, ([], []))
                steps.append(step)
                values.append(float(value))
    times = Curve.of(sorted(rows), [float(rows[step].get("time", 0.0)) for step in sorted(rows)])
    return Stage(name, {figure: Curve.of(*found) for figure, found in points.items()}, times)


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    if not file.is_file():
        return
    for line in file.read_bytes().splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found
