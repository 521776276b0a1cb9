"""A job as an editor shows it, advanced by its events. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kernel_assistant.events import (
    AnyEvent,
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
from kernel_assistant.records import JobOutcome, OptimizeResult

#: Where in a hundred each phase begins; the search's own share is by time.
_PHASES = {"open": 2, "baseline": 8, "compile": 12, "search": 15, "confirm": 80, "apply": 92, "free": 95}


@dataclass(frozen=True)
class Figures:
    """The best candidate so far. `compile_ms` and `speedup` are None where torch.compile could not be measured."""

    ms: float
    compile_ms: float | None
    speedup: float | None
    speedup_vs_eager: float


@dataclass(frozen=True)
class JobView:
    """`state` is queued, running, finished, failed or cancelled; `budget` in seconds, `searching` when that began."""

    job: str
    uri: str
    class_name: str
    kind: str = "optimize"
    state: str = "queued"
    message: str = ""
    next_step: str = ""
    turn: int = 0
    best: Figures | None = None
    percent: int = 0
    budget: float = 120.0
    searching: float = 0.0
    compile_ms: float | None = None
    result: OptimizeResult | None = None

    @property
    def active(self) -> bool:
        return self.state in ("queued", "running")

    def document(self) -> dict[str, Any]:
        """What `kernelAssistant/job` says."""
        best = self.best
        return {
            "job": self.job,
            "uri": self.uri,
            "class": self.class_name,
            "kind": self.kind,
            "state": self.state,
            "message": self.message,
            "nextStep": self.next_step,
            "turn": self.turn,
            "best": best and {"ms": best.ms, "compile_ms": best.compile_ms, "speedup": best.speedup},
            "percent": self.percent,
            "outcome": self.result.outcome.value if self.result is not None else None,
        }


def advanced(view: JobView, event: AnyEvent) -> JobView:
    """`view` after one event."""
    if isinstance(event, JobQueued):
        waiting = f"waiting for {event.position} other job{'s' if event.position != 1 else ''}"
        return replace(view, state="queued", message=waiting if event.position else "queued")
    if isinstance(event, JobStarted):
        return replace(view, state="running", message="going on" if event.resumed else "started")
    if isinstance(event, (JobFinished, JobFailed)):
        return _ended(view, event)
    view = _noted(view, event)
    return replace(view, percent=max(view.percent, _percent(view, event.time)))


def _noted(view: JobView, event: AnyEvent) -> JobView:
    if isinstance(event, Progress):
        begun = event.time if event.phase == "search" and not view.searching else view.searching
        percent = max(view.percent, _PHASES.get(event.phase, 0))
        return replace(view, message=event.message, searching=begun, percent=percent)
    if isinstance(event, BaselineMeasured):
        return replace(view, compile_ms=event.compile_ms, message="the original is measured")
    if isinstance(event, CandidateEvaluated):
        verdict = event.evaluation.outcome.value.replace("_", " ")
        return replace(view, turn=event.turn, message=f"turn {event.turn}: {verdict}")
    if isinstance(event, BestImproved):
        best = Figures(event.candidate_ms, view.compile_ms, event.speedup_vs_compile, event.speedup_vs_eager)
        return replace(view, best=best, message=f"best so far: {told(best)}")
    if isinstance(event, Warned):
        return replace(view, message=event.message)
    return view


def told(best: Figures) -> str:
    """`2.1× vs torch.compile`, or against eager where there is no other."""
    if best.speedup is None:
        return f"{best.speedup_vs_eager:.2f}× vs eager"
    return f"{best.speedup:.2f}× vs torch.compile"


def _percent(view: JobView, now: float) -> int:
    if not view.searching or view.percent >= _PHASES["confirm"]:
        return view.percent
    share = max(0.0, now - view.searching) / max(view.budget, 1.0)
    return int(_PHASES["search"] + min(share, 1.0) * (_PHASES["confirm"] - _PHASES["search"] - 1))


def _ended(view: JobView, event: JobFinished | JobFailed) -> JobView:
    if isinstance(event, JobFailed):
        return replace(view, state="failed", message=event.cause, next_step=event.next_step, percent=100)
    outcome = event.result.outcome
    state = {JobOutcome.cancelled: "cancelled", JobOutcome.failed: "failed"}.get(outcome, "finished")
    return replace(view, state=state, message=summary(event.result), percent=100, result=event.result)


def summary(result: OptimizeResult) -> str:
    """One line on how a job ended."""
    words = result.outcome.value.replace("_", " ")
    best = result.best
    if best is None:
        return words
    compared = best.speedup_vs_compile
    figure = f"{best.speedup_vs_eager:.2f}× vs eager" if compared is None else f"{compared:.2f}× vs torch.compile"
    return f"{words}: {figure}, verified"
