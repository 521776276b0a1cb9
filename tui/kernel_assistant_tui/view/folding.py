"""Defines `fold`, which computes the next state of a job from its events."""

from __future__ import annotations

from bisect import bisect_left

import msgspec

from kernel_assistant.events import (
    AnyEvent,
    BaselineMeasured,
    CandidateEvaluated,
    ModelReplied,
    Progress,
)
from kernel_assistant.records import Tier
from kernel_assistant.session.reporting import job_view
from kernel_assistant.session.reporting.words import of_baseline
from kernel_assistant_tui.view.lines import Line
from kernel_assistant_tui.view.search_view import JudgedCandidate, SearchView, Turn
from kernel_assistant_tui.view.telling import lines_of


def fold(view: SearchView, *events: AnyEvent) -> SearchView:
    """Returns `view` updated by `events`. Events that the view contains already, because a client attached twice,
    change nothing.

    Takes time linear in the size of the view and of the events, so fold a whole log in one call.
    """
    new = job_view.unseen(view, events)
    after = job_view.fold(view, *new)
    evaluated = [event for event in new if isinstance(event, CandidateEvaluated)]
    if evaluated:
        search = _Search(view)
        for judged in evaluated:
            search.judge(judged)
        after = msgspec.structs.replace(after, candidates=tuple(search.candidates.values()), turns=tuple(search.turns))
    repeats, lines = _Repeats(view), list[Line]()
    for event in new:
        if not repeats.has(event):
            lines += lines_of(event)
    return msgspec.structs.replace(
        after, lines=view.lines.plus(lines), asked=repeats.asked, last_progress=repeats.last_progress
    )


class _Repeats:
    """Recognizes events that repeat one of another conversation with a model: all conversations of a job report the
    same task, baseline and phases."""

    def __init__(self, view: SearchView) -> None:
        self.asked, self.last_progress = view.asked, view.last_progress
        self._baseline = "" if view.baseline is None else of_baseline(view.baseline)

    def has(self, event: AnyEvent) -> bool:
        """Whether `event` repeats the last event of its kind. Remembers the event for the next call."""
        match event:
            case BaselineMeasured():
                known, self._baseline = self._baseline, of_baseline(event)
                return known == self._baseline
            case Progress() if event.phase != "model":
                known, self.last_progress = self.last_progress, event.message
                return known == event.message
            case ModelReplied(role="user", turn=0):
                known, self.asked = self.asked, event.text
                return known == event.text
        return False


class _Search:
    """The candidates and turns of a view. `judge` adds an evaluation to them."""

    def __init__(self, view: SearchView) -> None:
        self.candidates = {seen.candidate: seen for seen in view.candidates}
        self.turns = list(view.turns)

    def judge(self, event: CandidateEvaluated) -> None:
        evaluation = event.evaluation
        fresh = JudgedCandidate(
            candidate=evaluation.candidate, turn=event.turn, schedule=event.schedule, origin=event.origin
        )
        seen = self.candidates.get(evaluation.candidate, fresh)
        if evaluation.tier is Tier.full:
            self.candidates[evaluation.candidate] = msgspec.structs.replace(seen, full=evaluation)
        else:
            self.candidates[evaluation.candidate] = msgspec.structs.replace(seen, quick=evaluation)
            self._count(event)

    def _count(self, event: CandidateEvaluated) -> None:
        """Count an evaluation in its turn, and update the best speed-ups of this and later turns. Evaluations of
        several conversations may arrive out of order."""
        turns, number, evaluation = self.turns, event.turn, event.evaluation
        index = bisect_left(turns, number, key=lambda turn: turn.number)
        if index == len(turns) or turns[index].number != number:
            turns.insert(index, _at_least(Turn(number=number, tried=0, correct=0), *turns[index - 1 : index]))
        counted = turns[index]
        turns[index] = msgspec.structs.replace(
            counted, tried=counted.tried + 1, correct=counted.correct + evaluation.correct
        )
        timing = evaluation.timing if evaluation.correct else None
        if timing is None:
            return
        own = Turn(number=0, tried=0, correct=0, vs_eager=timing.speedup_vs_eager, vs_compile=timing.speedup_vs_compile)
        for later in range(index, len(turns)):
            better = _at_least(turns[later], own)
            if better == turns[later]:
                return  # later turns are at least as good
            turns[later] = better


def _at_least(turn: Turn, *others: Turn) -> Turn:
    """Return `turn` with the best speed-ups of `turn` and `others`."""
    eager = [one.vs_eager for one in (turn, *others) if one.vs_eager is not None]
    compiled = [one.vs_compile for one in (turn, *others) if one.vs_compile is not None]
    return msgspec.structs.replace(turn, vs_eager=max(eager, default=None), vs_compile=max(compiled, default=None))
