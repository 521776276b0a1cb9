"""Inline completions (grey text at the cursor): the decorator that applies verified kernels above a class, and code
that a model writes in CUDA files."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lsprotocol.types import Command, InlineCompletionItem, Position, Range

from kernel_assistant.apply.applied import is_same_class
from kernel_assistant.apply.edit import decorator_line
from kernel_assistant.errors import Cancelled
from kernel_assistant.policy.client import ModelClient, Request
from kernel_assistant.records.transcript import Message
from kernel_assistant.session.threads import in_thread
from kernel_assistant.store import JobRow
from kernel_assistant_lsp.text.snapshot import Snapshot

#: Comment after the first line of code that a model wrote and that was not evaluated.
LABEL = "// kernel-assistant: unverified"
#: Limits of one suggestion: longer ones are hard to read and more often wrong.
MOST_LINES = 12
MOST_TOKENS = 192
#: Characters before and after the cursor, and of the plan, that are in the prompt.
BEFORE, AFTER, PLAN = 6000, 2000, 3000
_CURSOR = "<CURSOR>"
_CLASS = re.compile(r"class[ \t]+(\w+)")
_ASK = f"""\
You complete CUDA C++ in an editor. Answer with the code that belongs at {_CURSOR} and nothing else: no explanation, \
no fence, nothing that stands there already. At most {MOST_LINES} lines."""


def body(snapshot: Snapshot, position: Position, result: JobRow) -> list[InlineCompletionItem]:
    """Suggest the decorator that applies verified kernels, on the empty line above a class or while it is typed
    there.

    Accepting the suggestion runs `kernelAssistant.apply`, which writes the package and inserts the import among the
    other imports. The completion itself could insert the import only here, between the class and the comments above
    it.

    Return nothing if the job confirmed no gain, if the class no longer computes what was verified, or if the kernels
    are applied already. Parses the text: call it in a thread.
    """
    typed = snapshot.line(position.line)
    below = snapshot.line(position.line + 1)
    named = _CLASS.match(below)
    if named is None or named[1] != result.task.class_name or (typed[:1] in (" ", "\t") and typed.strip()):
        return []
    if result.result is None or not result.result.applicable:
        return []
    line = decorator_line(named[1])
    if line in snapshot.text:
        return []
    if not line.startswith(typed.strip()):
        return []
    if not is_same_class(_without(snapshot, position.line), result.task.content, named[1]):
        return []
    whole = snapshot.range(snapshot.starts[position.line], snapshot.line_end(position.line))
    what = {"uri": snapshot.uri, "class": named[1], "job": result.id, "completed": True}
    command = Command("Apply the kernels", "kernelAssistant.apply", arguments=[what])
    text = f"{_kept_line(snapshot, position.line)}{line}"
    return [InlineCompletionItem(insert_text=text, range=whole, command=command)]


def _kept_line(snapshot: Snapshot, number: int) -> str:
    """Return a line end if line `number` is the second of two empty lines above a class, else "". That empty line is
    kept, so that undo restores the text. An empty line below a comment, or a third empty line, was added for the
    completion and is replaced.
    """
    above = [snapshot.line(number - back).strip() for back in range(3)]
    is_second = not above[0] and not above[1] and bool(above[2])
    return ("\r\n" if "\r\n" in snapshot.text else "\n") if is_second and number >= 2 else ""


def is_cuda(path: Path) -> bool:
    return path.suffix in (".cu", ".cuh")


def in_workspace(path: Path) -> bool:
    """Whether this file is a CUDA source of generated kernels: their `plan.json` is beside it, or beside its folder
    `sources`."""
    return is_cuda(path) and any((folder / "plan.json").is_file() for folder in _folders(path))


@dataclass(frozen=True)
class CompletionContext:
    """The parts of the prompt: the text before and after the cursor, and the plan that launches the file's kernels (""
    if unknown)."""

    before: str
    after: str
    plan: str = ""

    def request(self) -> Request:
        plan = f"The plan that launches these kernels:\n{self.plan}\n\n" if self.plan else ""
        text = f"{plan}{self.before}{_CURSOR}{self.after}"
        messages = (Message(role="system", content=_ASK), Message(role="user", content=text))
        return Request(messages=messages, max_tokens=MOST_TOKENS)


def asked(snapshot: Snapshot, position: Position) -> CompletionContext:
    """Returns the parts of the prompt for a completion at `position`. Reads the plan from disk."""
    offset = snapshot.offset(position)
    plan = next((one / "plan.json" for one in _folders(snapshot.path) if (one / "plan.json").is_file()), None)
    text = plan.read_text(errors="replace")[:PLAN] if plan is not None else ""
    return CompletionContext(
        snapshot.text[max(0, offset - BEFORE) : offset], snapshot.text[offset : offset + AFTER], text
    )


async def continue_cuda(
    snapshot: Snapshot,
    position: Position,
    client: Callable[[], ModelClient],
    passed: Callable[[str], bool] = lambda _: False,
) -> list[InlineCompletionItem]:
    """Return the code that the model suggests at `position`, labelled as unverified unless `passed` accepts the whole
    resulting text.

    `client`, the model and `passed` run in a thread. Cancelling this coroutine (the user types on) stops the model.
    Raises PolicyError and MissingError; the caller logs them.
    """
    gone = threading.Event()
    offset = snapshot.offset(position)
    before, after = snapshot.text[:offset], snapshot.text[offset:]

    def written() -> str:
        question = asked(snapshot, position).request()
        model = client()
        try:
            reply = model.complete(question, gone.is_set).content or ""
        finally:
            model.close()
        code = continuation(reply, before, after)
        return code if not code.strip() or passed(before + code + after) else labelled(code)

    try:
        code = await in_thread(written)
    except asyncio.CancelledError:
        gone.set()
        raise
    except Cancelled:
        return []
    return [InlineCompletionItem(insert_text=code, range=Range(position, position))] if code.strip() else []


def continuation(reply: str, before: str, after: str) -> str:
    """Returns the code in a model's reply, at most 12 lines, without Markdown fences and without text that stands
    before or after the cursor already."""
    fence = re.search(r"```[\w+]*\n(.*?)(?:\n```|\Z)", reply, re.DOTALL)
    code = fence[1] if fence else reply
    code = code.replace(_CURSOR, "").replace("\r\n", "\n")
    line = before.rpartition("\n")[2]
    if line.strip() and code.lstrip().startswith(line.strip()):
        code = code.lstrip()[len(line.strip()) :]
    lines = code.rstrip().split("\n")[:MOST_LINES]
    following = next((one.strip() for one in after.split("\n") if one.strip()), "")
    for number, one in enumerate(lines):
        opened = "".join(lines[: number + 1])
        closes_more = opened.count("}") > opened.count("{")
        if following and one.strip() == following and (following[0] != "}" or closes_more):
            lines = lines[:number]
            break
    return "\n".join(lines)


def labelled(code: str) -> str:
    """Returns `code` with the comment LABEL ("unverified") at the end of its first line that is not empty and does not
    end with a backslash."""
    lines = code.split("\n")
    for number, line in enumerate(lines):
        if line.strip() and not line.rstrip().endswith("\\"):
            lines[number] = f"{line.rstrip()}  {LABEL}"
            return "\n".join(lines)
    return code


def without_labels(text: str) -> str:
    """Return `text` without all labels."""
    return re.sub(rf"[ \t]*{re.escape(LABEL)}", "", text)


def _folders(path: Path) -> tuple[Path, ...]:
    return (path.parent, path.parent.parent) if path.parent.name == "sources" else (path.parent,)


def _without(snapshot: Snapshot, number: int) -> str:
    """Return the text of `snapshot` with line `number` replaced by an empty line."""
    start = snapshot.starts[number]
    return snapshot.text[:start] + snapshot.text[snapshot.line_end(number) :]
