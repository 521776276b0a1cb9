"""A job as the terminal shows it.

Of candidates and turns there may be thousands. Nothing that they hold holds them: the garbage collector passes them by.
"""

from __future__ import annotations

import msgspec

from kernel_assistant.events import BaselineMeasured, BestImproved, JobFailed
from kernel_assistant.records import Evaluation, FreeWin, OptimizeResult, Timing
from kernel_assistant.store import JobState
from kernel_assistant_tui.view.lines import Lines


class Seen(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A candidate that was judged. A finalist is judged again, in the full tier, and may fail there."""

    candidate: str
    turn: int
    schedule: str
    origin: str
    quick: Evaluation | None = None
    full: Evaluation | None = None

    @property
    def evaluation(self) -> Evaluation:
        """The last word on it."""
        found = self.full or self.quick
        assert found is not None
        return found

    @property
    def speedup(self) -> float | None:
        """Over torch.compile where that was measured, else over eager; None for what is not right or not timed."""
        timing = self.evaluation.timing if self.evaluation.correct else None
        if timing is None:
            return None
        return timing.speedup_vs_eager if timing.speedup_vs_compile is None else timing.speedup_vs_compile


class Turn(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One turn of a policy, as its evaluations show it. Speed-ups are the best until its end, in the search's own
    figures: None as long as nothing was right."""

    number: int
    tried: int
    correct: int
    vs_eager: float | None = None
    vs_compile: float | None = None


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known. `best` is the candidate of the newest `BestImproved`; `seq` the last event's number.

    `asked` is the task as a model was told it last, `last_progress` the last words on a phase.
    """

    job: str
    task: str = ""
    target: str = ""
    state: JobState = JobState.queued
    device: str = ""
    phase: str = ""
    began: float = 0.0
    now: float = 0.0
    seq: int = 0
    operators: int = 0
    conversations: int = 0
    asked: str = ""
    last_progress: str = ""
    turns: tuple[Turn, ...] = ()
    candidates: tuple[Seen, ...] = ()
    best: BestImproved | None = None
    baseline: BaselineMeasured | None = None
    free_wins: tuple[FreeWin, ...] = ()
    lines: Lines = msgspec.field(default_factory=Lines)
    warnings: tuple[str, ...] = ()
    result: OptimizeResult | None = None
    failure: JobFailed | None = None

    @property
    def counts(self) -> str:
        return f"{len(self.candidates)} tried, {sum(seen.evaluation.correct for seen in self.candidates)} correct"

    @property
    def shown(self) -> Seen | None:
        """The best candidate; of a job that checked one, that."""
        if self.best is not None:
            return self.seen(self.best.candidate)
        return self.candidates[-1] if self.result is not None and self.candidates else None

    @property
    def timing(self) -> Timing | None:
        """Of the candidate that is shown, in the last evaluation of it."""
        seen = self.shown
        return None if seen is None else seen.evaluation.timing

    def seen(self, candidate: str) -> Seen | None:
        return next((seen for seen in self.candidates if seen.candidate == candidate), None)


def empty(job: str) -> JobView:
    """Of a job of which nothing was heard yet."""
    return JobView(job=job)
