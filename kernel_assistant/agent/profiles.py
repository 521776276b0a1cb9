"""Two ways to talk with a model: with tools and long reports (full), or without tools and with few tokens (compact)."""

from __future__ import annotations

import json
from typing import Any, Protocol

from msgspec.structs import replace

from kernel_assistant.agent.calls import calls_of, code_of, plan_of, source_of, with_calls
from kernel_assistant.agent.directives import UNITS, DirectiveError, candidate_from
from kernel_assistant.agent.guidance import Guidance
from kernel_assistant.agent.prompts import compact_system, compact_task, full_system, full_task
from kernel_assistant.agent.replies.parsed import ParsedCall
from kernel_assistant.agent.report import compact, report
from kernel_assistant.agent.tools import ALL
from kernel_assistant.agent.tools.workspace import PathRefused, Workspace
from kernel_assistant.generator.emit import ORIGIN, canonical_text
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.schedule import MOST_SHOWN, read_schedule
from kernel_assistant.generator.search.ladders import is_reasonable
from kernel_assistant.policy.base import EpisodeView
from kernel_assistant.records import Candidate, Evaluation, KernelTask, OpGraph
from kernel_assistant.records.canonical import canonical
from kernel_assistant.records.transcript import Message
from kernel_assistant.serving.template import write_call

PROFILES = ("full", "compact")
EXAMPLE = "That was the same problem again. This is a whole call of a tool, as text; nothing else is needed:"
MAX_COMPACT = 240  # characters of an observation, 80 tokens at three a token


class ToolProfile(Protocol):
    """A way to talk with a model. The server gets the tools' `schemas`; `compacts` says whether old messages may be
    sent shortened; `nudge` is the answer to a reply without calls. After `patience` replies in a row with the same
    problem, `example` is sent, and the next such reply ends the conversation; if `example` is "", the conversation ends
    at once."""

    name: str
    schemas: tuple[dict[str, Any], ...]
    compacts: bool
    nudge: str
    patience: int
    example: str

    def opening(self, view: EpisodeView, *, short: bool = False) -> tuple[Message, ...]:
        """Returns the first messages; `short` leaves out texts that the model can read with a tool."""

    def read(self, reply: Message) -> tuple[Message, list[ParsedCall]]:
        """Returns the reply as it is to be stored, and its tool calls."""

    def candidate(self, files: dict[str, str], view: EpisodeView) -> Candidate:
        """Returns the candidate to evaluate, made of `files` (name → text). Raises DirectiveError."""

    def observation(self, call: ParsedCall, text: str) -> Message: ...

    def report(self, evaluation: Evaluation, view: EpisodeView, candidate: Candidate, best_ms: float) -> str: ...

    def plan_error(self, error: DirectiveError) -> str: ...


class FullProfile:
    """The conversation with tools that have schemas, the module's whole file in the prompt, and long reports."""

    name, compacts = "full", True
    nudge = "Nothing was called. Call a tool; finish ends the work."
    patience = 3

    def __init__(self, task: KernelTask, guidance: Guidance) -> None:
        self._task, self._guidance = task, guidance
        self._tools = guidance.allowed(tuple(ALL))
        self.schemas = tuple(ALL[name].schema for name in self._tools)
        self._file = "kernel" + UNITS[task.target][0]
        self.example = f"{EXAMPLE}\n{write_call('list', '{}')}"

    def opening(self, view: EpisodeView, *, short: bool = False) -> tuple[Message, ...]:
        system = full_system(view.target, self._guidance.text, short=short)
        return Message(role="system", content=system), Message(role="user", content=full_task(self._task, view))

    def read(self, reply: Message) -> tuple[Message, list[ParsedCall]]:
        kept, calls = with_calls(reply, self._tools)
        source = source_of(kept.content)
        if source is None or not all(call.problem for call in calls) or not {"write", "evaluate"} <= {*self._tools}:
            return kept, calls
        # Small models answer with the kernel itself.
        written = json.dumps({"path": self._file, "text": source})
        return kept, [
            ParsedCall("", name, arguments, answerable=False)
            for name, arguments in (("write", written), ("evaluate", "{}"))
        ]

    def candidate(self, files: dict[str, str], view: EpisodeView) -> Candidate:
        return candidate_from(files, view.graph, view.target)

    def observation(self, call: ParsedCall, text: str) -> Message:
        """Returns a tool message with `text` or, if the call has no id that it could answer, a user message."""
        if call.answerable:
            return Message(role="tool", content=text, tool_call_id=call.id)
        return Message(role="user", content=text)

    def report(self, evaluation: Evaluation, view: EpisodeView, candidate: Candidate, best_ms: float) -> str:
        return report(evaluation, view, candidate, best_ms)

    def plan_error(self, error: DirectiveError) -> str:
        location = f"{error.file}:{error.line}: " if error.line else ""
        return f"the plan cannot be read: {location}{error}"


class CompactProfile:
    """The conversation without tools: each fenced block of code in a reply is a candidate, which is evaluated at once.
    Old messages are never shortened. Graph and sources use names for sizes and constants (`records/canonical.py`).

    Once a source of the model was correct, a line `plan:` in a reply selects another schedule, for which the generator
    writes the source.
    """

    name, compacts = "compact", False
    nudge = "no code"
    patience, example = 3, ""
    schemas: tuple[dict[str, Any], ...] = ()

    def __init__(self, workspace: Workspace, target: str, graph: OpGraph) -> None:
        """The reply's source is written to `workspace`."""
        self._workspace, self._target = workspace, target
        self._planned = self._was_right = False
        self._task = canonical(graph)
        self._file = "kernel" + UNITS[target][0]

    def opening(self, view: EpisodeView, *, short: bool = False) -> tuple[Message, ...]:
        system = Message(role="system", content=compact_system(view.target))
        task = compact_task(self._task, view.graph.dims, view.device.arch)
        return system, Message(role="user", content=task)

    def read(self, reply: Message) -> tuple[Message, list[ParsedCall]]:
        """Writes the source of the reply to the workspace. Returns the reply, and at most one call: an evaluation if
        the reply has code between ``` lines or a `plan:` line, else its first call."""
        code, plan = code_of(reply.content), plan_of(reply.content)
        calls = calls_of(reply, ("evaluate", "finish"))
        if code is None and plan is None:
            return reply, calls[:1]
        try:
            self._workspace.write(self._file, self._source(code, plan or ""))
            self._planned = code is None
        except (PathRefused, Unsupported, ValueError) as error:
            return reply, [ParsedCall("evaluate", "evaluate", "{}", problem=f"plan {error}"[:MAX_COMPACT])]
        return reply, [ParsedCall("evaluate", "evaluate", "{}")]

    def _source(self, code: str | None, plan: str) -> str:
        """Returns the source of a reply: its `code`, or the source that the generator writes for its `plan`, a
        schedule. Raises Unsupported for a schedule that cannot be used, and PathRefused."""
        if code is not None:
            return code
        if not self._was_right:
            raise Unsupported("a schedule is for a source that is right")
        schedule = read_schedule(self._target, plan)
        if not is_reasonable(schedule):
            raise Unsupported(f"schedule {plan[:MOST_SHOWN]!r}: too large a number")
        return canonical_text(self._task, schedule)

    def candidate(self, files: dict[str, str], view: EpisodeView) -> Candidate:
        candidate = candidate_from(files, view.graph, view.target, self._task)
        return replace(candidate, origin=ORIGIN) if self._planned else candidate

    def observation(self, call: ParsedCall, text: str) -> Message:
        return Message(role="tool", content=text[:MAX_COMPACT], tool_call_id=call.id)

    def report(self, evaluation: Evaluation, view: EpisodeView, candidate: Candidate, best_ms: float) -> str:
        self._was_right |= evaluation.correct
        return compact(evaluation, view.baseline)

    def plan_error(self, error: DirectiveError) -> str:
        return f"plan L{error.line} {error}" if error.line else f"plan {error}"
