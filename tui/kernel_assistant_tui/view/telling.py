"""Makes transcript lines from the events of a job."""

from __future__ import annotations

import json

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
    RequestedTool,
    TaskOpened,
    Warned,
)
from kernel_assistant.records import Evaluation, Outcome
from kernel_assistant.session.reporting.verdicts import verdict
from kernel_assistant.session.reporting.words import milliseconds, of_baseline, of_best, of_free_win, times
from kernel_assistant_tui.view.lines import Line, LineKind

#: Most messages of a failed candidate: an error in a C++ template may have hundreds.
MOST_DIAGNOSTICS = 12
#: Shown characters of a candidate's hash, like in `show`.
SHORT_HASH = 8
#: Most lines that are shown of the task (the user knows it), and of a tool's answer.
MOST_TASK, MOST_ANSWER = 4, 60
_FENCE = "```"


def lines_of(event: AnyEvent) -> list[Line]:
    """Return the lines of an event; the first line has the event's time. Some events have no lines."""
    lines = _lines(event)
    if not lines:
        return []
    first = lines[0]
    return [Line(first.kind, first.text, first.conversation, event.time), *lines[1:]]


def _lines(event: AnyEvent) -> list[Line]:
    match event:
        case Progress(phase="model"):
            return []  # the model's replies are shown by ModelReplied
        case ModelReplied():
            return of_message(event)
        case CandidateEvaluated():
            return _of_evaluation(event)
        case Warned():
            return _each(LineKind.warning, f"warning: {event.message}")
        case JobFinished():
            return [Line(LineKind.end, f"ended: {verdict(event.result)}")]
        case JobFailed():
            return _of_failure(event)
        case BestImproved():
            return [Line(LineKind.best, f"best {plain_best(event)}")]
        case FreeWinMeasured():
            return [Line(LineKind.free, f"free: {of_free_win(event.win)}")]
        case _:
            return [Line(LineKind.phase, _of_phase(event))]


def plain_best(event: BestImproved) -> str:
    """Describes the best candidate without its schedule (tile sizes and the like), which the line of its evaluation has
    shown already."""
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
    evaluation = event.evaluation
    head = f"turn {event.turn}  {evaluation.candidate[:SHORT_HASH]}  {evaluation.tier.value}  "
    if evaluation.outcome is Outcome.correct:
        words = head + _figures(evaluation) + (f"  {event.schedule}" if event.schedule else "")
        return [Line(LineKind.good, words, event.conversation)]
    outcome = evaluation.outcome.value.replace("_", " ")
    first, *rest = f"{outcome}: {evaluation.message}".splitlines()
    lines = [
        Line(LineKind.bad, head + first),
        *(Line(LineKind.detail, f"  {line}") for line in rest),
        *_details(evaluation),
    ]
    return [Line(line.kind, line.text, event.conversation) for line in lines]


def _figures(evaluation: Evaluation) -> str:
    parts = ["correct"]
    if evaluation.timing is not None:
        timing = evaluation.timing
        parts.append(milliseconds(timing.candidate_ms))
        compared = timing.speedup_vs_compile
        parts.append(f"{times(timing.speedup_vs_eager)} eager")
        parts += [] if compared is None else [f"{times(compared)} torch.compile"]
    accuracy = evaluation.accuracy
    if accuracy is not None:
        parts.append(f"relative error {accuracy.relative_error:.2g} ({accuracy.error_ratio:.2g}× PyTorch's)")
    return ", ".join(parts)


def _details(evaluation: Evaluation) -> list[Line]:
    lines: list[Line] = []
    # Messages about a header are repeated by each file that includes it.
    different = tuple(dict.fromkeys(evaluation.diagnostics))
    for one in different[:MOST_DIAGNOSTICS]:
        location = ":".join(part for part in (one.file, str(one.line) if one.line else "") if part)
        lines += _each(LineKind.detail, f"  {location + ': ' if location else ''}{one.severity}: {one.message}")
    left = len(different) - MOST_DIAGNOSTICS
    if left > 0:
        lines.append(Line(LineKind.detail, f"  and {left} more"))
    return lines


def _of_failure(event: JobFailed) -> list[Line]:
    lines = _each(LineKind.failure, f"failed: {event.cause}")
    return [*lines, *_each(LineKind.detail, f"next: {event.next_step}")] if event.next_step else lines


def _each(kind: LineKind, text: str) -> list[Line]:
    return [Line(kind, line) for line in text.splitlines() or [""]]


def of_message(event: ModelReplied) -> list[Line]:
    """Return the lines of a message. They have the number of its conversation; 0 for the task, which all
    conversations share."""
    lines = {"assistant": _reply, "tool": _answer, "user": _user}[event.role](event)
    conversation = event.conversation if event.turn else 0
    return [Line(kind, text, conversation) for kind, text in lines]


def _reply(event: ModelReplied) -> list[tuple[LineKind, str]]:
    cost = f", {event.tokens} tokens" if event.tokens else ""
    cost += f" in {event.seconds:.1f} s" if event.seconds else ""
    lines = [(LineKind.phase, f"model, turn {event.turn}{cost}")]
    inside = False
    for line in event.text.splitlines():
        fence = line.lstrip().startswith(_FENCE)
        lines.append((LineKind.code if inside or fence else LineKind.said, line))
        inside = inside != fence
    for call in event.calls:
        lines += _call(call)
    return lines


def _call(call: RequestedTool) -> list[tuple[LineKind, str]]:
    """Return the lines of a tool call: short arguments beside the tool's name, arguments of several lines below it."""
    try:
        parsed = json.loads(call.arguments)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        return [
            (LineKind.call, f"> {call.name}"),
            *((LineKind.code, f"  {line}") for line in call.arguments.splitlines()),
        ]
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in parsed.items()}
    short = " ".join(f"{name}={text}" for name, text in texts.items() if "\n" not in text)
    lines = [(LineKind.call, f"> {call.name} {short}".rstrip())]
    for text in texts.values():
        lines += [(LineKind.code, f"  {line}") for line in text.splitlines() if "\n" in text]
    return lines


def _answer(event: ModelReplied) -> list[tuple[LineKind, str]]:
    head = f"< {event.candidate[:8]} " if event.candidate else "< "
    return _cut([(LineKind.heard, line) for line in (head + event.text).splitlines()], MOST_ANSWER)


def _user(event: ModelReplied) -> list[tuple[LineKind, str]]:
    if event.turn == 0:
        return _cut([(LineKind.heard, line) for line in f"the task: {event.text}".splitlines()], MOST_TASK)
    return [(LineKind.user, line) for line in f"to the model: {event.text}".splitlines()]


def _cut(lines: list[tuple[LineKind, str]], most: int) -> list[tuple[LineKind, str]]:
    left = len(lines) - most
    return [*lines[:most], (lines[0][0], f"  and {left} more lines")] if left > 0 else lines
