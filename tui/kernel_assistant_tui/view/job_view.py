"""A job as the terminal shows it: `fold` takes what was known and an event to what is known then."""

from __future__ import annotations

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
from kernel_assistant.records import Evaluation, FreeWin, JobOutcome, OptimizeResult, Tier, Timing
from kernel_assistant.session.words import of_baseline
from kernel_assistant.store import JobState
from kernel_assistant_tui.view.lines import Lines
from kernel_assistant_tui.view.telling import lines_of


class Seen(msgspec.Struct, frozen=True, kw_only=True):
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


class Turn(msgspec.Struct, frozen=True, kw_only=True):
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


def fold(view: JobView, event: AnyEvent) -> JobView:
    """`view` after `event`. One that was seen already (a second `attach`) changes nothing."""
    if event.seq and event.seq <= view.seq:
        return view
    known, view = view, _noted(view, event)
    new = [] if _is_known(known, event) else lines_of(event, view.timing)
    return msgspec.structs.replace(
        view,
        began=view.began or event.time,
        now=event.time or view.now,
        seq=event.seq or view.seq,
        lines=view.lines.plus(new),
    )


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
        case _:
            return _measured(view, event)


def _measured(
    view: JobView,
    event: TaskOpened | BaselineMeasured | CandidateEvaluated | BestImproved | FreeWinMeasured | ModelSaid | Warned,
) -> JobView:
    change = msgspec.structs.replace
    match event:
        case TaskOpened():
            return change(view, operators=event.nodes)
        case BaselineMeasured():
            return change(view, baseline=event)
        case CandidateEvaluated():
            return _judged(view, event)
        case BestImproved():
            return change(view, best=event)
        case FreeWinMeasured():
            return change(view, free_wins=(*view.free_wins, event.win))
        case ModelSaid():
            asked = event.text if event.role == "user" and event.turn == 0 else view.asked
            return change(view, conversations=max(view.conversations, event.conversation), asked=asked)
        case Warned():
            return change(view, warnings=(*view.warnings, event.message))


def _judged(view: JobView, event: CandidateEvaluated) -> JobView:
    found = event.evaluation
    known = [place for place, one in enumerate(view.candidates) if one.candidate == found.candidate]
    place = known[0] if known else len(view.candidates)
    fresh = Seen(candidate=found.candidate, turn=event.turn, schedule=event.schedule, origin=event.origin)
    seen = view.candidates[place] if known else fresh
    if found.tier is Tier.full:
        seen = msgspec.structs.replace(seen, full=found)
    else:
        seen = msgspec.structs.replace(seen, quick=found)
        view = msgspec.structs.replace(view, turns=_turned(view.turns, event))
    return msgspec.structs.replace(view, candidates=(*view.candidates[:place], seen, *view.candidates[place + 1 :]))


def _turned(turns: tuple[Turn, ...], event: CandidateEvaluated) -> tuple[Turn, ...]:
    """Several conversations take turns while others are in theirs: what comes late counts for its own."""
    place = next((place for place, turn in enumerate(turns) if turn.number >= event.turn), len(turns))
    before, rest = turns[:place], turns[place:]
    known = rest[0] if rest and rest[0].number == event.turn else Turn(number=event.turn, tried=0, correct=0)
    later = rest[1:] if rest and rest[0].number == event.turn else rest
    found = event.evaluation
    turn = msgspec.structs.replace(known, tried=known.tried + 1, correct=known.correct + found.correct)
    turn = _at_least(turn, before[-1:])
    timing = found.timing if found.correct else None
    if timing is not None:
        own = Turn(number=0, tried=0, correct=0, vs_eager=timing.speedup_vs_eager, vs_compile=timing.speedup_vs_compile)
        turn = _at_least(turn, (own,))
        later = tuple(_at_least(one, (own,)) for one in later)
    return (*before, turn, *later)


def _at_least(turn: Turn, others: tuple[Turn, ...]) -> Turn:
    """`turn` with the best speed-ups of it and `others`."""
    eager = [one.vs_eager for one in (turn, *others) if one.vs_eager is not None]
    compiled = [one.vs_compile for one in (turn, *others) if one.vs_compile is not None]
    return msgspec.structs.replace(turn, vs_eager=max(eager, default=None), vs_compile=max(compiled, default=None))
