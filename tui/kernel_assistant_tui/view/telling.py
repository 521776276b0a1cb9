"""Lines for what a job tells: one or more for an event."""

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
from kernel_assistant.records import Evaluation, Outcome, Timing
from kernel_assistant.session.words import milliseconds, of_baseline, of_best, of_free_win, times, verdict
from kernel_assistant_tui.view.lines import Kind, Line
from kernel_assistant_tui.view.messages import of_message

#: Of a bad candidate's messages. A template's error may come with hundreds.
MOST_DIAGNOSTICS = 12
#: Of a candidate's hash, as `show` has it.
SHORT_HASH = 8


def lines_of(event: AnyEvent, timing: Timing | None) -> list[Line]:
    """`timing` is that of the best candidate, from which the last word follows. The first line has the time; there is
    none for what others say."""
    lines = _lines(event, timing)
    if not lines:
        return []
    first = lines[0]
    return [Line(first.kind, first.text, first.conversation, event.time), *lines[1:]]


def _lines(event: AnyEvent, timing: Timing | None) -> list[Line]:
    match event:
        case Progress(phase="model"):
            return []  # what it calls comes with what it says
        case ModelSaid():
            return of_message(event)
        case CandidateEvaluated():
            return _of_evaluation(event)
        case Warned():
            return _each(Kind.warning, f"warning: {event.message}")
        case JobFinished():
            return [Line(Kind.end, f"ended: {verdict(event.result, timing)}")]
        case JobFailed():
            return _of_failure(event)
        case BestImproved():
            return [Line(Kind.best, f"best {plain_best(event)}")]
        case FreeWinMeasured():
            return [Line(Kind.free, f"free: {of_free_win(event.win)}")]
        case _:
            return [Line(Kind.phase, _of_phase(event))]


def plain_best(event: BestImproved) -> str:
    """Without the schedule, which stands beside the candidate when it is judged."""
    return of_best(msgspec.structs.replace(event, schedule=""))


def _of_phase(event: JobQueued | JobStarted | Progress | TaskOpened | BaselineMeasured) -> str:
    match event:
        case JobQueued():
            ahead = f", {event.position} jobs before it" if event.position else ""
            return f"queued for {event.target}{ahead}: {event.task}"
        case JobStarted():
            return f"{'going on' if event.resumed else 'started'} on {event.device}"
        case Progress():
            return event.message or event.phase
        case TaskOpened():
            return f"module exported: {event.nodes} operators"
        case BaselineMeasured():
            return of_baseline(event)


def _of_evaluation(event: CandidateEvaluated) -> list[Line]:
    found = event.evaluation
    head = f"turn {event.turn}  {found.candidate[:SHORT_HASH]}  {found.tier.value}  "
    if found.outcome is Outcome.correct:
        words = head + _figures(found) + (f"  {event.schedule}" if event.schedule else "")
        return [Line(Kind.good, words, event.conversation)]
    outcome = found.outcome.value.replace("_", " ")
    first, *rest = f"{outcome}: {found.message}".splitlines()
    lines = [Line(Kind.bad, head + first), *(Line(Kind.detail, f"  {line}") for line in rest), *_details(found)]
    return [Line(line.kind, line.text, event.conversation) for line in lines]


def _figures(found: Evaluation) -> str:
    parts = ["correct"]
    if found.timing is not None:
        timing = found.timing
        parts.append(milliseconds(timing.candidate_ms))
        compared = timing.speedup_vs_compile
        parts.append(f"{times(timing.speedup_vs_eager)} eager")
        parts += [] if compared is None else [f"{times(compared)} torch.compile"]
    if found.accuracy is not None:
        parts.append(f"error {found.accuracy.error:.2g} ({found.accuracy.error_ratio:.2g}× PyTorch's)")
    return ", ".join(parts)


def _details(found: Evaluation) -> list[Line]:
    lines: list[Line] = []
    # A header that is used in several places is complained of in each.
    different = tuple(dict.fromkeys(found.diagnostics))
    for one in different[:MOST_DIAGNOSTICS]:
        place = ":".join(part for part in (one.file, str(one.line) if one.line else "") if part)
        lines += _each(Kind.detail, f"  {place + ': ' if place else ''}{one.severity}: {one.message}")
    left = len(different) - MOST_DIAGNOSTICS
    if left > 0:
        lines.append(Line(Kind.detail, f"  and {left} more"))
    return lines


def _of_failure(event: JobFailed) -> list[Line]:
    lines = _each(Kind.failure, f"failed: {event.cause}")
    return [*lines, *_each(Kind.detail, f"next: {event.next_step}")] if event.next_step else lines


def _each(kind: Kind, text: str) -> list[Line]:
    return [Line(kind, line) for line in text.splitlines() or [""]]
