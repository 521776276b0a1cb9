"""Lines for what is said between a model and those who play with it."""

from __future__ import annotations

import json

from kernel_assistant.events import Called, ModelSaid
from kernel_assistant_tui.view.lines import Kind, Line

#: Of the task, which the user knows, and of what a tool answers. Lines.
MOST_TASK, MOST_ANSWER = 4, 60
_FENCE = "```"


def of_message(event: ModelSaid) -> list[Line]:
    """A message with its conversation's number; the task is that of all."""
    told = {"assistant": _reply, "tool": _answer, "user": _user}[event.role](event)
    conversation = event.conversation if event.turn else 0
    return [Line(kind, text, conversation) for kind, text in told]


def _reply(event: ModelSaid) -> list[tuple[Kind, str]]:
    cost = f", {event.tokens} tokens" if event.tokens else ""
    cost += f" in {event.seconds:.1f} s" if event.seconds else ""
    told = [(Kind.phase, f"model, turn {event.turn}{cost}")]
    inside = False
    for line in event.text.splitlines():
        fence = line.lstrip().startswith(_FENCE)
        told.append((Kind.code if inside or fence else Kind.said, line))
        inside = inside != fence
    for call in event.calls:
        told += _call(call)
    return told


def _call(call: Called) -> list[tuple[Kind, str]]:
    """Short arguments beside the name, long ones below it, as they are in the file that they make."""
    try:
        found = json.loads(call.arguments)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        return [(Kind.call, f"> {call.name}"), *((Kind.code, f"  {line}") for line in call.arguments.splitlines())]
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in found.items()}
    short = " ".join(f"{name}={text}" for name, text in texts.items() if "\n" not in text)
    told = [(Kind.call, f"> {call.name} {short}".rstrip())]
    for text in texts.values():
        told += [(Kind.code, f"  {line}") for line in text.splitlines() if "\n" in text]
    return told


def _answer(event: ModelSaid) -> list[tuple[Kind, str]]:
    head = f"< {event.candidate[:8]} " if event.candidate else "< "
    return _cut([(Kind.heard, line) for line in (head + event.text).splitlines()], MOST_ANSWER)


def _user(event: ModelSaid) -> list[tuple[Kind, str]]:
    if event.turn == 0:
        return _cut([(Kind.heard, line) for line in f"the task: {event.text}".splitlines()], MOST_TASK)
    return [(Kind.user, line) for line in f"to the model: {event.text}".splitlines()]


def _cut(told: list[tuple[Kind, str]], most: int) -> list[tuple[Kind, str]]:
    left = len(told) - most
    return [*told[:most], (told[0][0], f"  and {left} more lines")] if left > 0 else told
