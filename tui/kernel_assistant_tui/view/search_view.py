"""The state of a job as the terminal shows it.

There may be thousands of candidates and turns. They cannot be part of reference cycles, so `gc=False` is safe.
"""

from __future__ import annotations

import msgspec

from kernel_assistant.events import JobFailed, JobFinished, JobQueued, JobStarted, Progress
from kernel_assistant.records import Evaluation, Timing
from kernel_assistant.session.reporting.job_view import JobView
from kernel_assistant_tui.view.lines import Lines


class JudgedCandidate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A candidate with its evaluations: `quick` from the search, `full` from the confirmation of the best candidates,
    which may fail there. `candidate` is its hash."""

    candidate: str
    turn: int
    schedule: str
    origin: str
    quick: Evaluation | None = None
    full: Evaluation | None = None

    @property
    def evaluation(self) -> Evaluation:
        """The evaluation in the full tier if there is one, else the one in the quick tier."""
        last = self.full or self.quick
        assert last is not None
        return last

    @property
    def speedup(self) -> float | None:
        """Speed-up over torch.compile, or over eager if that is not known; None if the candidate is incorrect or not
        timed."""
        timing = self.evaluation.timing if self.evaluation.correct else None
        if timing is None:
            return None
        return timing.speedup_vs_eager if timing.speedup_vs_compile is None else timing.speedup_vs_compile


class Turn(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One turn of a policy, with the numbers of candidates tried and of correct ones. The speed-ups are the best of
    all turns so far, in the quick tier; None if there is no correct candidate yet."""

    number: int
    tried: int
    correct: int
    vs_eager: float | None = None
    vs_compile: float | None = None


class SearchView(JobView, frozen=True, kw_only=True):
    """A job with its turns, its candidates and the lines of its transcript.

    `asked` is the last task message to a model, `last_progress` the last message about a phase.
    """

    turns: tuple[Turn, ...] = ()
    candidates: tuple[JudgedCandidate, ...] = ()
    lines: Lines = msgspec.field(default_factory=Lines)
    asked: str = ""
    last_progress: str = ""

    @property
    def phase(self) -> str:
        """What the job is doing now, in a few words."""
        match self.newest(JobQueued, JobStarted, Progress, JobFinished, JobFailed):
            case JobQueued():
                return "waiting"
            case JobStarted():
                return "started"
            case Progress(phase=phase, message=message):
                return message or phase
            case JobFinished():
                return "ended"
            case JobFailed(cause=cause):
                return cause
            case _:
                return ""

    @property
    def shown(self) -> JudgedCandidate | None:
        """The candidate to show: the best one, or the only candidate of a job that verified or timed one candidate."""
        if self.best is not None:
            return self.seen(self.best.candidate)
        return self.candidates[-1] if self.result is not None and self.candidates else None

    @property
    def timing(self) -> Timing | None:
        """The timing in the last evaluation of the shown candidate."""
        seen = self.shown
        return None if seen is None else seen.evaluation.timing

    def seen(self, candidate: str) -> JudgedCandidate | None:
        return next((seen for seen in self.candidates if seen.candidate == candidate), None)
