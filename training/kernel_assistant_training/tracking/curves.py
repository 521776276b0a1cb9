"""A run's figures over its steps, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from kernel_assistant.session.training_run import METRICS
from kernel_assistant_training.tracking import EVALUATED
from kernel_assistant_training.tracking.metrics import read_metrics, read_objects

#: Folders from a stage's to those of its parts that have metrics of their own (the fine-tuning of `rft`).
DEPTHS = ("", "*/", "*/*/")
#: Up to this many points are drawn as they are. Of more points, so many are drawn, each for 1 / WINDOW of the axis.
MARKED, DRAWN, WINDOW = 60, 300, 50


@dataclass(frozen=True)
class StageCurves:
    """The figures of the stage `name`: for each of its runs a table with a column a figure over the step, NaN where a
    line lacks it. `times` are those of the first run, in seconds since the epoch."""

    name: str
    runs: tuple[pd.DataFrame, ...]
    times: pd.Series

    def __contains__(self, figure: str) -> bool:
        return all(figure in run for run in self.runs)

    def spread(self, figure: str) -> pd.DataFrame:
        """`mean`, `low` and `high` over the runs, for the range of steps that all have; gaps are filled linearly. If
        there are more than `MARKED` steps, also over a moving window, for `DRAWN` of them."""
        columns = pd.concat([run[figure].dropna() for run in self.runs], axis=1)
        columns = columns.interpolate("index", limit_area="inside").dropna()
        ways = {"mean": "mean", "low": "min", "high": "max"}
        table = pd.DataFrame({name: columns.agg(how, axis=1) for name, how in ways.items()})
        if len(table) <= MARKED:
            return table
        window = table.rolling(len(table) // WINDOW | 1, center=True, min_periods=1)
        return window.agg(ways).iloc[np.unique(np.linspace(0, len(table) - 1, DRAWN).astype(int))]


def read_stages(run: Path) -> list[StageCurves]:
    """Reads the stages in a folder and below it, ordered by their start. If a step was written twice, the later line
    counts."""
    stages = []
    for file in [file for depth in DEPTHS for file in sorted(run.glob(depth + METRICS))]:
        if rows := read_metrics(file.parent):
            stages += [_stage(str(name), part, "step") for name, part in pd.DataFrame(rows).groupby("stage")]
    return sorted(stages, key=lambda stage: float(stage.times.iloc[0]))


def read_evaluated(run: Path) -> StageCurves | None:
    """The results of `train eval` over the checkpoints' numbers; None if there are none."""
    rows = [{"time": 0.0, **row} for row in read_objects(run / EVALUATED) if "checkpoint" in row]
    return _stage("evaluations", pd.DataFrame(rows), "checkpoint") if rows else None


def together(stages: Sequence[StageCurves]) -> StageCurves:
    """Several runs of one stage as one."""
    return StageCurves(stages[0].name, tuple(run for stage in stages for run in stage.runs), stages[0].times)


def _stage(name: str, rows: pd.DataFrame, over: str) -> StageCurves:
    by_step = rows.drop_duplicates(over, keep="last").set_index(over).sort_index()
    times = by_step.pop("time")
    # Other values are for people: texts, switches.
    values = by_step.select_dtypes(exclude="bool").apply(pd.to_numeric, errors="coerce")
    return StageCurves(name, (values.replace([np.inf, -np.inf], np.nan).dropna(axis=1, how="all"),), times)
