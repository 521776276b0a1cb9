"""The state of a job, computed from its events, for front ends that show a job. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from kernel_assistant.events import (
    AnyEvent,
    BaselineMeasured,
    BestImproved,
    CandidateEvaluated,
    FreeWinMeasured,
    JobFailed,
    JobFinished,
    JobQueued,
    JobStarted,
    ModelReplied,
    Progress,
)
from kernel_assistant.records import FreeWin, JobOutcome, OptimizeResult, Spending
from kernel_assistant.store import JobState

#: Percentage at which each phase begins; within the search it grows with time.
_PHASES = {"open": 2, "baseline": 8, "compile": 12, "search": 15, "confirm": 80, "apply": 92, "free": 95}

_View = TypeVar("_View", bound="JobView")
_Event = TypeVar("_Event")


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known of a job. Front ends may add fields of their own in a subclass.

    `seq` is the number of the last event. `began` is the time of the first event, `now` the latest time of an event,
    `searching` the time at which the search began; all in seconds since the epoch, or 0 if not reached yet.
    `percent_begun` is the percentage at which the furthest phase so far begins. `latest` has the newest event of each
    event class, oldest first. `judged` maps the hash of each candidate to whether its last evaluation was correct.
    `best_baseline` is the baseline that was known when the best candidate was found; `spent` is the cost of models so
    far.
    """

    job: str = ""
    state: JobState = JobState.queued
    seq: int = 0
    began: float = 0.0
    now: float = 0.0
    searching: float = 0.0
    percent_begun: int = 0
    conversations: int = 0
    spent: Spending = Spending()
    latest: tuple[AnyEvent, ...] = ()
    judged: dict[str, bool] = {}
    best_baseline: BaselineMeasured | None = None
    free_wins: tuple[FreeWin, ...] = ()
    result: OptimizeResult | None = None

    def newest(self, *kinds: type[_Event]) -> _Event | None:
        """Returns the newest event of these classes; None if there was none."""
        return next((event for event in reversed(self.latest) if isinstance(event, kinds)), None)

    @property
    def baseline(self) -> BaselineMeasured | None:
        return self.newest(BaselineMeasured)

    @property
    def best(self) -> BestImproved | None:
        """The event of the best candidate so far; None if there is none."""
        return self.newest(BestImproved)

    @property
    def failure(self) -> JobFailed | None:
        return self.newest(JobFailed)

    @property
    def ends(self) -> float:
        """The time at which the budget is used up, in seconds since the epoch; 0 without a budget."""
        started = self.newest(JobStarted)
        return 0.0 if started is None else started.ends

    @property
    def counts(self) -> str:
        return f"{len(self.judged)} tried, {sum(self.judged.values())} correct"

    def percent_done(self, budget: float) -> int:
        """Estimates which percentage of the job is done, from 0 to 100. `budget` is the job's budget in seconds."""
        if not self.state.active:
            return 100
        if not self.searching or self.percent_begun >= _PHASES["confirm"]:
            return self.percent_begun
        share = min((self.now - self.searching) / max(budget, 1.0), 1.0)
        return int(_PHASES["search"] + share * (_PHASES["confirm"] - _PHASES["search"] - 1))


def unseen(view: JobView, events: Iterable[AnyEvent]) -> list[AnyEvent]:
    """Returns the `events` that `view` does not contain yet. Some events come twice if a client attaches to the job
    again."""
    new: list[AnyEvent] = []
    seq = view.seq
    for event in events:
        if not event.seq or event.seq > seq:
            new.append(event)
            seq = event.seq or seq
    return new


def fold(view: _View, *events: AnyEvent) -> _View:
    """Returns `view` updated with `events`. Events that it contains already are skipped.

    Takes time linear in the number of candidates and of events: fold a whole log in one call.
    """
    new = unseen(view, events)
    for event in new:
        view = _noted(_after(view, event), event)
    # The best candidates are evaluated again in the full tier, and may fail there.
    evaluations = [event.evaluation for event in new if isinstance(event, CandidateEvaluated)]
    if not evaluations:
        return view
    judged = {evaluation.candidate: evaluation.correct for evaluation in evaluations}
    return msgspec.structs.replace(view, judged=view.judged | judged)


def _after(view: _View, event: AnyEvent) -> _View:
    """Returns `view` with the fields updated that every event changes: number, times, newest event of its class."""
    return msgspec.structs.replace(
        view,
        seq=event.seq or view.seq,
        began=view.began or event.time,
        now=max(view.now, event.time),
        latest=(*(other for other in view.latest if type(other) is not type(event)), event),
    )


def _noted(view: _View, event: AnyEvent) -> _View:
    """Returns `view` with the fields updated that only this class of event changes."""
    change = msgspec.structs.replace
    match event:
        case JobQueued():
            return change(view, state=JobState.queued)
        case JobStarted():
            return change(view, state=JobState.running)
        case Progress():
            searching = view.searching or (event.time if event.phase == "search" else 0.0)
            begun = max(view.percent_begun, _PHASES.get(event.phase, 0))
            return change(view, searching=searching, percent_begun=begun)
        case BestImproved():
            return change(view, best_baseline=view.baseline)
        case FreeWinMeasured():
            return change(view, free_wins=(*view.free_wins, event.win))
        case ModelReplied():
            # Replies of several conversations may arrive out of order.
            spent = max(view.spent, event.spent or view.spent, key=lambda one: one.requests)
            return change(view, conversations=max(view.conversations, event.conversation), spent=spent)
        case JobFinished():
            cancelled = event.result.outcome is JobOutcome.cancelled
            return change(view, result=event.result, state=JobState.cancelled if cancelled else JobState.done)
        case JobFailed():
            return change(view, state=JobState.failed)
        case _:
            return view
