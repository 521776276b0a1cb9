"""`fold` takes what was known of a job and events to what is known then."""

from __future__ import annotations

from bisect import bisect_left

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
    ModelSaid,
    Progress,
    TaskOpened,
    Warned,
)
from kernel_assistant.records import JobOutcome, Tier
from kernel_assistant.session.words import of_baseline
from kernel_assistant.store import JobState
from kernel_assistant_tui.view.job_view import JobView, Seen, Turn
from kernel_assistant_tui.view.lines import Line
from kernel_assistant_tui.view.telling import lines_of


def fold(view: JobView, *events: AnyEvent) -> JobView:
    """`view` after `events`. One that was seen already (a second `attach`) changes nothing.

    Linear in what is known and in what is new: a log is folded in one call, and not event by event.
    """
    folding = _Folding(view)
    for event in events:
        folding.add(event)
    return folding.view()


class _Folding:
    """A view while events are added to it: what grows is kept apart, and put into the view at the end."""

    def __init__(self, view: JobView) -> None:
        self._view = view
        self._candidates = {seen.candidate: seen for seen in view.candidates}
        self._turns = list(view.turns)
        self._lines: list[Line] = []

    def view(self) -> JobView:
        return msgspec.structs.replace(self._judged(), lines=self._view.lines.plus(self._lines))

    def _judged(self) -> JobView:
        """All but the new lines."""
        return msgspec.structs.replace(
            self._view, candidates=tuple(self._candidates.values()), turns=tuple(self._turns)
        )

    def add(self, event: AnyEvent) -> None:
        known = self._view
        if event.seq and event.seq <= known.seq:
            return
        self._view = msgspec.structs.replace(
            _noted(known, event),
            began=known.began or event.time,
            now=event.time or known.now,
            seq=event.seq or known.seq,
        )
        if isinstance(event, CandidateEvaluated):
            self._judge(event)
        if not _is_known(known, event):
            # Only the last word of a job depends on the timing.
            self._lines += lines_of(event, self._judged().timing if isinstance(event, JobFinished) else None)

    def _judge(self, event: CandidateEvaluated) -> None:
        found = event.evaluation
        fresh = Seen(candidate=found.candidate, turn=event.turn, schedule=event.schedule, origin=event.origin)
        seen = self._candidates.get(found.candidate, fresh)
        if found.tier is Tier.full:
            self._candidates[found.candidate] = msgspec.structs.replace(seen, full=found)
        else:
            self._candidates[found.candidate] = msgspec.structs.replace(seen, quick=found)
            self._count(event)

    def _count(self, event: CandidateEvaluated) -> None:
        """Several conversations take turns while others are in theirs: what comes late counts for its own."""
        turns, number, found = self._turns, event.turn, event.evaluation
        place = bisect_left(turns, number, key=lambda turn: turn.number)
        if place == len(turns) or turns[place].number != number:
            turns.insert(place, _at_least(Turn(number=number, tried=0, correct=0), *turns[place - 1 : place]))
        counted = turns[place]
        turns[place] = msgspec.structs.replace(
            counted, tried=counted.tried + 1, correct=counted.correct + found.correct
        )
        timing = found.timing if found.correct else None
        if timing is None:
            return
        own = Turn(number=0, tried=0, correct=0, vs_eager=timing.speedup_vs_eager, vs_compile=timing.speedup_vs_compile)
        for later in range(place, len(turns)):
            better = _at_least(turns[later], own)
            if better == turns[later]:
                return  # those behind it are at least as good
            turns[later] = better


def _is_known(view: JobView, event: AnyEvent) -> bool:
    """Several conversations begin alike, and wait for the same baseline one after another."""
    match event:
        case BaselineMeasured():
            return view.baseline is not None and of_baseline(view.baseline) == of_baseline(event)
        case Progress():
            return view.last_progress == event.message
        case ModelSaid(role="user", turn=0):
            return view.asked == event.text
    return False


def _noted(view: JobView, event: AnyEvent) -> JobView:
    change = msgspec.structs.replace
    match event:
        case JobQueued():
            return change(view, task=event.task, target=event.target, state=JobState.queued, phase="waiting")
        case JobStarted():
            return change(view, device=event.device, state=JobState.running, phase="started")
        case Progress():
            said = view.last_progress if event.phase == "model" else event.message
            return change(view, phase=event.message or event.phase, last_progress=said)
        case JobFinished():
            cancelled = event.result.outcome is JobOutcome.cancelled
            state = JobState.cancelled if cancelled else JobState.done
            return change(view, result=event.result, state=state, phase="ended")
        case JobFailed():
            return change(view, failure=event, state=JobState.failed, phase=event.cause)
        case CandidateEvaluated():
            return view
        case _:
            return _measured(view, event)


def _measured(
    view: JobView, event: TaskOpened | BaselineMeasured | BestImproved | FreeWinMeasured | ModelSaid | Warned
) -> JobView:
    change = msgspec.structs.replace
    match event:
        case TaskOpened():
            return change(view, operators=event.nodes)
        case BaselineMeasured():
            return change(view, baseline=event)
        case BestImproved():
            return change(view, best=event)
        case FreeWinMeasured():
            return change(view, free_wins=(*view.free_wins, event.win))
        case ModelSaid():
            asked = event.text if event.role == "user" and event.turn == 0 else view.asked
            return change(view, conversations=max(view.conversations, event.conversation), asked=asked)
        case Warned():
            return change(view, warnings=(*view.warnings, event.message))


def _at_least(turn: Turn, *others: Turn) -> Turn:
    """`turn` with the best speed-ups of it and `others`."""
    eager = [one.vs_eager for one in (turn, *others) if one.vs_eager is not None]
    compiled = [one.vs_compile for one in (turn, *others) if one.vs_compile is not None]
    return msgspec.structs.replace(turn, vs_eager=max(eager, default=None), vs_compile=max(compiled, default=None))
