"""Transcript lines for the messages of a conversation with a model."""

from __future__ import annotations

import json

from kernel_assistant.events import ModelReplied, RequestedTool
from kernel_assistant_tui.view.lines import Line, LineKind

#: Most lines that are shown of the task (the user knows it), and of a tool's answer.
MOST_TASK, MOST_ANSWER = 4, 60
_FENCE = "```"


def of_message(event: ModelReplied) -> list[Line]:
    """Return the lines of a message, with its conversation's number; 0 for the task, which all conversations share."""
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
    """Show short arguments beside the tool's name, and those of several lines below it with their line breaks."""
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
