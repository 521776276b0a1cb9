"""One look after another at a run: state, stages, and the figures of the stage that is chosen. For threads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernel_assistant.session.training_run import RunStatus, Wish, read_status, wish_of
from kernel_assistant_tui.runs.metrics import Stage, Tail
from kernel_assistant_tui.runs.pipeline import StageState, log_lines, metrics_of, read_stages

_REPORT = "report.md"


@dataclass(frozen=True)
class Look:
    """What one look found. `stages` are those of a recipe, () for a run of one stage; `chosen` is the one that `curves`
    and `log` are of. `log` is read where a stage has no figures. `fresh`: figures are new since the look before;
    `report`: a report.md is there."""

    status: RunStatus | None
    wish: Wish
    stages: tuple[StageState, ...]
    chosen: str
    curves: tuple[Stage, ...]
    log: tuple[str, ...] = ()
    trouble: str = ""
    fresh: bool = False
    report: bool = False


class Reading:
    """Of the run in a folder."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self._tails: dict[Path, Tail] = {}
        self._copies: dict[Path, tuple[Stage, ...]] = {}

    def look(self, wanted: str) -> Look:
        """`wanted` is the name of a stage, "" for the one that runs, or ran last."""
        status = read_status(self.run)
        stages = read_stages(self.run, status)
        if not stages:
            return self._single(status, wanted)
        at = next((one for one in stages if one.name == wanted), None) or _latest(stages)
        folder = metrics_of(at.folder)
        curves, trouble, fresh = self._curves(folder) if folder is not None else ((), "", False)
        log = () if curves else tuple(log_lines(at.folder))
        report = (self.run / _REPORT).is_file()
        return Look(status, wish_of(self.run), stages, at.name, curves, log, trouble, fresh, report)

    def _single(self, status: RunStatus | None, wanted: str) -> Look:
        curves, trouble, fresh = self._curves(self.run)
        names = [one.name for one in curves]
        chosen = wanted if wanted in names else names[-1] if names else ""
        return Look(status, wish_of(self.run), (), chosen, curves, (), trouble, fresh)

    def _curves(self, folder: Path) -> tuple[tuple[Stage, ...], str, bool]:
        """Copies, which are drawn while the next look goes on; why they cannot be read; whether there are new ones."""
        tail, trouble, fresh = self._tails.setdefault(folder, Tail(folder)), "", False
        try:
            fresh = tail.read()
        except OSError as error:
            trouble = f"{tail.path} cannot be read: {error.strerror}"
        if fresh:
            self._copies[folder] = tuple(one.copy() for one in tail.stages.values())
        return self._copies.get(folder, ()), trouble, fresh


def _latest(stages: tuple[StageState, ...]) -> StageState:
    """Where nothing goes on the last one that has figures: the end of a run has none."""
    going = [one for one in stages if one.state in ("running", "paused", "failed", "died")]
    told = [one for one in stages if metrics_of(one.folder) is not None]
    return going[0] if going else told[-1] if told else stages[0]
