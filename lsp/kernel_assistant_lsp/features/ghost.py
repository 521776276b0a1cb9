"""Inline completion: a verified result where its class is edited, and a model's continuation in CUDA files."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lsprotocol.types import Command, InlineCompletionItem, Position, Range

from kernel_assistant.apply.applied import is_same_class
from kernel_assistant.apply.edit import IMPORT_LINE, decorator_line
from kernel_assistant.errors import Cancelled
from kernel_assistant.policy.client import ModelClient, Request
from kernel_assistant.records import JobOutcome
from kernel_assistant.records.transcript import Message
from kernel_assistant.session.threads import in_thread
from kernel_assistant.store import JobRow
from kernel_assistant_lsp.snapshot import Snapshot

#: Behind the first line of what a model wrote and nobody has checked.
LABEL = "// kernel-assistant: unverified"
#: What a person reads at a glance; more of it is more often wrong.
MOST_LINES = 12
MOST_TOKENS = 192
#: Characters of the file around the cursor, and of the plan, that the model is shown.
BEFORE, AFTER, PLAN = 6000, 2000, 3000
_CURSOR = "<CURSOR>"
_CLASS = re.compile(r"class[ \t]+(\w+)")
_ASK = f"""\
You complete CUDA C++ in an editor. Answer with the code that belongs at {_CURSOR} and nothing else: no explanation, \
no fence, nothing that stands there already. At most {MOST_LINES} lines."""


def body(snapshot: Snapshot, position: Position, result: JobRow) -> list[InlineCompletionItem]:
    """The lines that give a class its verified kernels, on the empty line right above it (or while they are being typed
    there). Accepting them runs `kernelAssistant.apply`, which writes the package that they name.

    Nothing where the job confirmed no gain, where the class computes something else than what was verified, and where
    it has its kernels already. Parses, so it is for a thread.
    """
    typed = snapshot.line(position.line)
    below = snapshot.line(position.line + 1)
    named = _CLASS.match(below)
    if named is None or named[1] != result.task.class_name or (typed[:1] in (" ", "\t") and typed.strip()):
        return []
    if result.result is None or result.result.outcome is not JobOutcome.improved:
        return []
    line = decorator_line(snapshot.path.stem, named[1])
    if line in snapshot.text:
        return []
    known = re.search(rf"^{re.escape(IMPORT_LINE)}\b", snapshot.text, re.MULTILINE) is not None
    text = line if known else f"{IMPORT_LINE}\n\n\n{line}"
    if not text.startswith(typed.strip()):
        return []
    if not is_same_class(_without(snapshot, position.line), result.task.content, named[1]):
        return []
    whole = snapshot.range(snapshot.starts[position.line], snapshot.line_end(position.line))
    what = {"uri": snapshot.uri, "class": named[1]}
    command = Command("Apply the kernels", "kernelAssistant.apply", arguments=[what])
    return [InlineCompletionItem(insert_text=text, range=whole, command=command)]


def in_workspace(path: Path) -> bool:
    """Whether this file is a source of a candidate: plan.json lies beside it, or beside the folder `sources`."""
    if path.suffix not in (".cu", ".cuh"):
        return False
    return any((folder / "plan.json").is_file() for folder in _folders(path))


@dataclass(frozen=True)
class Asked:
    """What the model is shown: the file up to and behind the cursor, and the plan of its workspace."""

    before: str
    after: str
    plan: str = ""

    def request(self) -> Request:
        plan = f"The plan that launches these kernels:\n{self.plan}\n\n" if self.plan else ""
        text = f"{plan}{self.before}{_CURSOR}{self.after}"
        messages = (Message(role="system", content=_ASK), Message(role="user", content=text))
        return Request(messages=messages, max_tokens=MOST_TOKENS)


def asked(snapshot: Snapshot, position: Position) -> Asked:
    """Reads the workspace's plan from disk."""
    offset = snapshot.offset(position)
    plan = next((one / "plan.json" for one in _folders(snapshot.path) if (one / "plan.json").is_file()), None)
    text = plan.read_text(errors="replace")[:PLAN] if plan is not None else ""
    return Asked(snapshot.text[max(0, offset - BEFORE) : offset], snapshot.text[offset : offset + AFTER], text)


async def continue_cuda(
    snapshot: Snapshot,
    position: Position,
    client: Callable[[], ModelClient],
    passed: Callable[[str], bool] = lambda _: False,
) -> list[InlineCompletionItem]:
    """What the model would write at `position`, labelled unless `passed` knows the whole text that comes of it.

    `client`, the model and `passed` run in a thread. Cancelling this coroutine (typing went on) ends the model's
    reply where it stands. Raises PolicyError and MissingError, for the log.
    """
    gone = threading.Event()
    offset = snapshot.offset(position)
    before, after = snapshot.text[:offset], snapshot.text[offset:]

    def written() -> str:
        question = asked(snapshot, position).request()
        model = client()
        try:
            said = model.complete(question, gone.is_set).content or ""
        finally:
            model.close()
        code = continuation(said, before, after)
        return code if not code.strip() or passed(before + code + after) else labelled(code)

    try:
        code = await in_thread(written)
    except asyncio.CancelledError:
        gone.set()
        raise
    except Cancelled:
        return []
    return [InlineCompletionItem(insert_text=code, range=Range(position, position))] if code.strip() else []


def continuation(said: str, before: str, after: str) -> str:
    """The code of a reply: without fences, without what stands around the cursor already, and not too long."""
    fence = re.search(r"```[\w+]*\n(.*?)(?:\n```|\Z)", said, re.DOTALL)
    code = fence[1] if fence else said
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
    """`code` with the label behind its first line that has code; a line that goes on in the next one stays whole."""
    lines = code.split("\n")
    for number, line in enumerate(lines):
        if line.strip() and not line.rstrip().endswith("\\"):
            lines[number] = f"{line.rstrip()}  {LABEL}"
            return "\n".join(lines)
    return code


def without_labels(text: str) -> str:
    """For a source that the environment has passed."""
    return re.sub(rf"[ \t]*{re.escape(LABEL)}", "", text)


def _folders(path: Path) -> tuple[Path, ...]:
    return (path.parent, path.parent.parent) if path.parent.name == "sources" else (path.parent,)


def _without(snapshot: Snapshot, number: int) -> str:
    """The text without what is being typed on a line."""
    start = snapshot.starts[number]
    return snapshot.text[:start] + snapshot.text[snapshot.line_end(number) :]
