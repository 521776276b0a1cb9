"""Reads a training run again and again while it is shown: its state, its stages, and the curves of the chosen stage.
Call the functions in threads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernel_assistant.session.training_run import RunStatus, TrainingCommand, command_of, read_status
from kernel_assistant_tui.runs.metrics import MetricsTail, Stage
from kernel_assistant_tui.runs.pipeline import StageState, log_lines, metrics_of, read_stages

_REPORT = "report.md"


@dataclass(frozen=True)
class RunSnapshot:
    """One reading of a training run. `command` is the user's last command to the run. `stages` are the stages of a
    recipe, () for a run of one stage; `curves` and `log` belong to the stage `chosen`. `log` is read only if the stage
    has no curves. `trouble` is the error of reading the curves, or "". `fresh` says whether the curves have changed
    since the previous reading, `report` whether there is a report.md."""

    status: RunStatus | None
    command: TrainingCommand
    stages: tuple[StageState, ...]
    chosen: str
    curves: tuple[Stage, ...]
    log: tuple[str, ...] = ()
    trouble: str = ""
    fresh: bool = False
    report: bool = False


class RunReader:
    """Reads the training run in the folder `run`, once for each call of `look`."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self._tails: dict[Path, MetricsTail] = {}
        self._copies: dict[Path, tuple[Stage, ...]] = {}

    def look(self, wanted: str) -> RunSnapshot:
        """Read the run. `wanted` is the name of the chosen stage, "" for the stage that runs or ran last."""
        status = read_status(self.run)
        stages = read_stages(self.run, status)
        if not stages:
            return self._single(status, wanted)
        at = next((one for one in stages if one.name == wanted), None) or _latest(stages)
        folder = metrics_of(at.folder)
        curves, trouble, fresh = self._curves(folder) if folder is not None else ((), "", False)
        log = () if curves else tuple(log_lines(at.folder))
        report = (self.run / _REPORT).is_file()
        return RunSnapshot(status, command_of(self.run), stages, at.name, curves, log, trouble, fresh, report)

    def _single(self, status: RunStatus | None, wanted: str) -> RunSnapshot:
        curves, trouble, fresh = self._curves(self.run)
        names = [one.name for one in curves]
        chosen = wanted if wanted in names else names[-1] if names else ""
        return RunSnapshot(status, command_of(self.run), (), chosen, curves, (), trouble, fresh)

    def _curves(self, folder: Path) -> tuple[tuple[Stage, ...], str, bool]:
        """Returns (curves, error or "", whether the curves have changed). The curves are copies, which can be drawn
        while a thread does the next reading."""
        tail, trouble, fresh = self._tails.setdefault(folder, MetricsTail(folder)), "", False
        try:
            fresh = tail.read()
        except OSError as error:
            trouble = f"{tail.path} cannot be read: {error.strerror}"
        if fresh:
            self._copies[folder] = tuple(one.copy() for one in tail.stages.values())
        return self._copies.get(folder, ()), trouble, fresh


def _latest(stages: tuple[StageState, ...]) -> StageState:
    """Return the first stage that runs, is paused or failed; else the last stage with metrics, else the first stage."""
    going = [one for one in stages if one.state in ("running", "paused", "failed", "died")]
    reporting = [one for one in stages if metrics_of(one.folder) is not None]
    return going[0] if going else reporting[-1] if reporting else stages[0]
