"""The events of a job and its conversations with models, as Markdown. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime

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
    Warned,
)
from kernel_assistant.records import Diagnostic, Evaluation
from kernel_assistant.session.reporting.verdicts import verdict
from kernel_assistant.session.reporting.words import milliseconds, of_baseline, of_best, of_free_win, times

#: Most lines that are shown of the task (the user knows it), of a tool's answer and of compiler messages.
_MOST_TASK, _MOST_ANSWER, _MOST_MESSAGE = 4, 40, 12


def text_of(events: Iterable[AnyEvent]) -> str:
    """Return one block of Markdown for each event worth reading. The text of later events can be appended to it."""
    return "".join(f"{block}\n" for event in events if (block := _block(event)))


def _block(event: AnyEvent) -> str:
    if isinstance(event, ModelReplied):
        return _message(event)
    words = _words(event)
    return f"- `{_clock(event.time)}` {words}" if words else ""


def _clock(moment: float) -> str:
    return datetime.fromtimestamp(moment, tz=UTC).astimezone().strftime("%H:%M:%S")


def _words(event: AnyEvent) -> str:
    match event:
        case JobQueued():
            return f"queued: {event.task}" + (f", {event.position} jobs before it" if event.position else "")
        case JobStarted():
            return f"{'going on' if event.resumed else 'started'} on {event.device}"
        case Progress():
            return "" if event.phase == "model" else event.message or event.phase
        case BaselineMeasured():
            return of_baseline(event)
        case CandidateEvaluated():
            return f"turn {event.turn}: {_judged(event.evaluation)}"
        case BestImproved():
            return f"**best {of_best(event)}**"
        case FreeWinMeasured():
            return f"without a kernel: {of_free_win(event.win)}"
        case Warned():
            return f"warning: {event.message}"
        case JobFinished():
            return f"**ended: {verdict(event.result)}**"
        case JobFailed():
            return f"**failed: {event.cause}**" + (f" Next: {event.next_step}" if event.next_step else "")
    return ""


def _judged(evaluation: Evaluation) -> str:
    if not evaluation.correct:
        messages = "\n".join([evaluation.message, *dict.fromkeys(_diagnostic(one) for one in evaluation.diagnostics)])
        return f"{evaluation.outcome.value.replace('_', ' ')}\n{_quoted(messages, _MOST_MESSAGE)}"
    if evaluation.timing is None:
        return "correct"
    compared = evaluation.timing.speedup_vs_compile
    gain = f"{times(evaluation.timing.speedup_vs_eager)} eager"
    return f"correct, {milliseconds(evaluation.timing.candidate_ms)}, {gain}" + (
        "" if compared is None else f", {times(compared)} torch.compile"
    )


def _diagnostic(one: Diagnostic) -> str:
    location = ":".join(filter(None, (one.file, str(one.line or ""))))
    return f"{location}: {one.severity}: {one.message}" if location else f"{one.severity}: {one.message}"


def _message(event: ModelReplied) -> str:
    if event.role == "tool":
        return f"\n_answer {event.candidate[:8]}_\n\n{_quoted(event.text, _MOST_ANSWER)}".replace(" _\n", "_\n")
    if event.role == "user" and event.turn == 0:
        # The task is the same for every conversation of the job.
        return f"\n### the task\n\n{_quoted(event.text, _MOST_TASK)}" if event.conversation <= 1 else ""
    if event.role == "user":
        return f"\n### to the model\n\n{_quoted(event.text, _MOST_ANSWER)}"
    tokens = f", {event.tokens} tokens" if event.tokens else ""
    seconds = f" in {event.seconds:.1f} s" if event.seconds else ""
    number = f"conversation {event.conversation}, " if event.conversation > 1 else ""
    calls = "".join(f"\n\n{_call(one.name, one.arguments)}" for one in event.calls)
    return f"\n### `{_clock(event.time)}` model, {number}turn {event.turn}{tokens}{seconds}\n\n{event.text}{calls}\n"


def _call(name: str, arguments: str) -> str:
    """Return a tool call as Markdown: short arguments beside the tool's name, arguments of several lines below it."""
    try:
        parsed = json.loads(arguments)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        return f"calls `{name}`\n\n{_code(arguments)}"
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in parsed.items()}
    short = " ".join(f"{key}={text}" for key, text in texts.items() if "\n" not in text)
    long = "".join(f"\n\n{_code(text)}" for text in texts.values() if "\n" in text)
    return f"calls `{name}` {short}".rstrip() + long


def _code(text: str) -> str:
    return f"```cpp\n{text.rstrip()}\n```"


def _quoted(text: str, most: int) -> str:
    lines = text.splitlines()
    more = [f"… and {len(lines) - most} more lines"] if len(lines) > most else []
    return "\n".join(f"> {line}".rstrip() for line in [*lines[:most], *more]) + "\n"
