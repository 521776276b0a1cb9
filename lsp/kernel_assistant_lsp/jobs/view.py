"""The state of a job as an editor shows it. Pure."""

from __future__ import annotations

from typing import Any

from kernel_assistant.events import (
    BaselineMeasured,
    BestImproved,
    CandidateEvaluated,
    JobFailed,
    JobFinished,
    JobQueued,
    JobStarted,
    Progress,
    Warned,
)
from kernel_assistant.records import Gain, JobOutcome, Offer, OptimizeResult
from kernel_assistant.records.offer import OVER_EAGER
from kernel_assistant.session.kinds.outcome import is_unconfirmed
from kernel_assistant.session.reporting.job_view import JobView
from kernel_assistant.session.reporting.verdicts import not_confirmed, verdicts, why_nothing
from kernel_assistant.session.reporting.words import of_spending
from kernel_assistant.store import JobState


class EditorJob(JobView, frozen=True, kw_only=True):
    """The state of a job, with the document `uri` and the class for which it runs. `budget` is in seconds; `kind` is a
    JobKind."""

    uri: str
    class_name: str
    kind: str = "optimize"
    budget: float = 120.0

    @property
    def active(self) -> bool:
        return self.state.active

    @property
    def status(self) -> str:
        """Return queued, running, finished, failed, cancelled or interrupted."""
        if self.state is not JobState.done:
            return str(self.state.value)
        return "failed" if self.result is not None and self.result.outcome is JobOutcome.failed else "finished"

    @property
    def message(self) -> str:
        """Describe the newest event that the user should know about."""
        match self.newest(
            JobQueued,
            JobStarted,
            Progress,
            BaselineMeasured,
            CandidateEvaluated,
            BestImproved,
            Warned,
            JobFinished,
            JobFailed,
        ):
            case JobQueued(position=position):
                return f"waiting for {position} other job{'s' if position != 1 else ''}" if position else "queued"
            case JobStarted(resumed=resumed):
                return "going on" if resumed else "started"
            case Progress(message=message) | Warned(message=message) | JobFailed(cause=message):
                return message
            case BaselineMeasured():
                return "the original is measured"
            case CandidateEvaluated(turn=turn, evaluation=evaluation):
                return f"turn {turn}: {evaluation.outcome.value.replace('_', ' ')}"
            case BestImproved() as best:
                return f"best so far: {told(best)}"
            case JobFinished(result=result):
                return summary(result)
            case _:
                return ""

    @property
    def next_step(self) -> str:
        """Return the next step after the failure of the job; "" if it has not failed."""
        return "" if self.failure is None else self.failure.next_step

    @property
    def percent(self) -> int:
        return self.percent_done(self.budget)

    def document(self) -> dict[str, Any]:
        """Return the content of the notification `kernelAssistant/job`."""
        evaluated = self.newest(CandidateEvaluated)
        return {
            "job": self.job,
            "uri": self.uri,
            "class": self.class_name,
            "kind": self.kind,
            "state": self.status,
            "message": self.message,
            "nextStep": self.next_step,
            "turn": 0 if evaluated is None else evaluated.turn,
            "best": self._best(),
            "percent": self.percent,
            "left": max(0.0, self.ends - self.now) if self.ends and self.active else None,
            "spent": of_spending(self.spent),
            "outcome": self.result.outcome.value if self.result is not None else None,
            "offer": (Offer.none if self.result is None else self.result.offered).value,
            "unconfirmed": self.result is not None and is_unconfirmed(self.result),
        }

    def _best(self) -> dict[str, Any] | None:
        best = self.best
        if best is None:
            return None
        return {
            "ms": best.candidate_ms,
            "compile_ms": None if self.best_baseline is None else self.best_baseline.compile_ms,
            "speedup": best.speedup_vs_compile,
            "confirmed": best.confirmed,
        }


def told(best: BestImproved) -> str:
    """Formats the speed-up of the best candidate: `2.1× vs torch.compile`, or vs eager if torch.compile was not timed;
    followed by `, not confirmed` before the full measurement."""
    state = "" if best.confirmed else ", not confirmed"
    if best.speedup_vs_compile is None:
        return f"{best.speedup_vs_eager:.2f}× vs eager{state}"
    return f"{best.speedup_vs_compile:.2f}× vs torch.compile{state}"


def at_its_end(view: EditorJob) -> str:
    """Return a message about the end of a job: its class, how it ended, and the next step."""
    applicable = view.result is not None and view.result.applicable
    next_step = "review or apply it with the code actions of the class" if applicable else view.next_step
    return f"{view.class_name}: {view.message}" + (f"; {next_step}" if next_step else "")


def summary(result: OptimizeResult) -> str:
    """Describe in one line how a job ended."""
    words = result.outcome.value.replace("_", " ")
    best = result.best
    if best is None and result.outcome is JobOutcome.no_candidate:
        return f"{words}: {why_nothing(result, budget='budget')}"
    if best is None and (text := not_confirmed(result)):
        return f"{words}: {text}"
    if best is None:
        return words
    if result.vs_eager is not Gain.unknown and result.offered is not Offer.recommended:
        return f"{words}: {'; '.join(f'{name} {verdict}' for name, verdict in verdicts(result))}"
    if result.gain_over == OVER_EAGER or result.headline is None:
        return f"{words}: {best.speedup_vs_eager:.2f}× vs eager, verified"
    name, speedup, _ = result.headline
    return f"{words}: {speedup:.2f}× vs {name}, verified"
