"""ModelPolicy: a conversation with a language model as a policy of the loop.

A step of the loop lasts from one evaluation to the next; all other tool calls run within a step. Hence `_converse` is a
generator: it yields a `PolicyAction` for each evaluation that the model asks for, and reads the result from the next
view (`EpisodeView`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from kernel_assistant.agent.conversation import CHARACTERS_PER_TOKEN, ContextWindow, Conversation, event_of
from kernel_assistant.agent.directives import DirectiveError
from kernel_assistant.agent.evaluated import EvaluatedCandidates
from kernel_assistant.agent.profiles import ToolProfile
from kernel_assistant.agent.replies.parsed import ParsedCall
from kernel_assistant.agent.replies.watch import ReplyWatch
from kernel_assistant.agent.stops import Stop
from kernel_assistant.agent.tools import ALL, ToolContext, ToolError
from kernel_assistant.agent.tools.task import EvaluateArguments, FinishArguments
from kernel_assistant.agent.tools.workspace import PathRefused
from kernel_assistant.errors import Cancelled, MissingError
from kernel_assistant.events import AnyEvent, Progress
from kernel_assistant.policy.base import EpisodeView, PolicyAction
from kernel_assistant.policy.bill import Bill
from kernel_assistant.policy.client import STOPPED, ModelClient, PolicyError, Request
from kernel_assistant.records import Candidate, Evaluation, OpGraph, StopReason, Tier
from kernel_assistant.records.transcript import Message, Transcript, Usage

#: Most characters of a token, in the mean of a prompt.
MOST_CHARACTERS = 4.0
#: The problem of a reply without a call.
NO_CALL = "nothing was called"
#: What is said about a reply that did not end by itself, by its finish reason.
UNFINISHED = {
    "length": "The reply was cut off: it was too long.",
    STOPPED: "The reply was cut off: it repeated itself.",
}
#: Finish reason of what came of a reply before a limit, a cancel or the end of its server.
CUT = "cut"
#: Characters of the last reply that are shown if a conversation gets nowhere.
MOST_SHOWN = 200
#: Fewest tokens for which a reply is worth its prompt.
LEAST_REPLY = 256
_NUMBER = re.compile(r"\d+")
#: Characters of a reply that are kept with the step.
MOST_SAID = 2000


@dataclass(frozen=True)
class ConversationLimits:
    """Limits of one conversation: the number of replies (`turns`), the tokens of all replies together (`tokens`) and of
    each (`reply`)."""

    turns: int = 200
    tokens: int = 1_000_000
    reply: int = 8192


class ModelPolicy:
    """A policy that lets a language model work until it finishes or reaches a limit. The policy sends the user's
    messages that the caller appends to `steering` while it runs. All conversations of a job add their tokens and cost
    to one `bill`."""

    name = "model"

    def __init__(
        self,
        client: ModelClient,
        profile: ToolProfile,
        context: ToolContext,
        limits: ConversationLimits,
        emit: Callable[[AnyEvent], None],
        steering: Sequence[str] = (),
        conversation: int = 1,
        bill: Bill | None = None,
    ) -> None:
        self._client, self._profile, self._context, self._limits = client, profile, context, limits
        self._emit, self._steering, self._steering_read = emit, steering, 0
        self._number, self._bill = conversation, bill or Bill()
        self._room = ContextWindow(client.context_tokens, min(limits.reply, client.context_tokens * 3 // 8))
        self._conversation = Conversation(self._room, profile.schemas, compacts=profile.compacts)
        self._view: EpisodeView
        self._deadline = 0.0
        self._generated = self._stuck = 0
        self._problem, self._problems = "", list[str]()
        self._reported = ""
        self._actions = self._converse()

    def supports(self, graph: OpGraph, target: str) -> str | None:
        """Returns None (no objection), because a model may try any graph."""
        return None

    def step(self, view: EpisodeView) -> PolicyAction:
        """Continues the conversation until the model asks for an evaluation or finishes; returns that action. Raises
        Stop at a limit of the conversation, Cancelled, and PolicyError if the model's server fails."""
        self._view, self._deadline = view, time.monotonic() + view.remaining
        return next(self._actions)

    def transcript(self, ending: str = "") -> Transcript:
        """Returns the whole conversation so far. `ending` is the stop reason; "" while the conversation goes on."""
        return Transcript(
            model=self._client.name,
            profile=self._profile.name,
            messages=tuple(self._conversation.messages),
            tools=self._profile.schemas,
            ending=ending,
        )

    def close(self) -> None:
        self._client.close()

    def _converse(self) -> Iterator[PolicyAction]:
        for message in self._opening():
            self._add(message)
        self._go_on_with(self._view)
        while True:
            self._listen()
            reply, calls = self._profile.read(self._ask())
            self._conversation.add_reply(reply)
            self._tell(reply)
            self._problems = [] if calls else [NO_CALL]
            for call in calls:
                self._emit(
                    Progress(phase="model", message=f"model, turn {self._conversation.turn - 1}: {call.name or '?'}")
                )
                self._reported = ""
                observation = self._profile.observation(call, (yield from self._done(call, reply)))
                self._add(msgspec.structs.replace(observation, candidate=self._reported))
            self._check_progress(reply, failed=len(self._problems) >= len(calls))

    def _opening(self) -> tuple[Message, ...]:
        """Returns the first messages, in a shorter form if they would fill the model's context. Raises PolicyError if
        even that form does not fit."""
        whole = self._profile.opening(self._view)
        if not self._profile.compacts or self._conversation.tokens_of(whole) <= self._room.prompt:
            return whole
        short = self._profile.opening(self._view, short=True)
        # The estimate is high: what is refused would not fit with the fewest tokens that such a text may have.
        fewest = int(self._conversation.tokens_of(short) * CHARACTERS_PER_TOKEN / MOST_CHARACTERS)
        if fewest > self._room.prompt:
            cause = f"the first prompt has over {fewest} tokens, the model's context has room for {self._room.prompt}"
            raise PolicyError("refused", cause, "serve --context N, or a model with a longer context")
        return short

    def _add(self, message: Message) -> None:
        self._conversation.add(message)
        self._tell(message)

    def _tell(self, message: Message) -> None:
        event = event_of(message, self._number, self._conversation.turn - 1)
        if event is not None:
            spent = self._bill.spent if message.role == "assistant" else None
            self._emit(msgspec.structs.replace(event, spent=spent))

    def _go_on_with(self, view: EpisodeView) -> None:
        """Writes the best candidate from before a crash into the workspace and tells the model about it; does nothing
        if there is none."""
        tried = EvaluatedCandidates(view.steps)
        for candidate in tried.finalists()[:1]:
            for name, text in candidate.sources.items():
                self._context.workspace.write(name, text)
            best = f"{tried.best_call_ms:.4g} ms"
            words = f"An earlier conversation was interrupted. Its best, {best}, lies in the workspace."
            self._add(Message(role="user", content=words))

    def _listen(self) -> None:
        while self._steering_read < len(self._steering):
            self._add(Message(role="user", content=self._steering[self._steering_read]))
            self._steering_read += 1

    def _ask(self) -> Message:
        """Returns the model's next reply. If the server refuses the prompt as too long, shortens old messages and
        retries."""
        self._check_limits()
        while True:
            try:
                return self._complete()
            except PolicyError as error:
                if error.kind != "context" or not self._conversation.tighten():
                    raise

    def _complete(self) -> Message:
        watch = ReplyWatch(self._emit, self._conversation.turn)

        def is_over() -> bool:
            watch.waiting()
            return self._is_over()

        request = Request(self._conversation.prompt(), self._profile.schemas, self._most_tokens(), watch=watch.seen)
        try:
            reply = self._client.complete(request, is_over)
            self._charge(reply.usage, watch.text or reply.content)
            return reply
        except PolicyError:
            self._keep(watch.text)
            raise
        except Cancelled:
            self._keep(watch.text)
            if self._context.cancel.is_set():
                raise
            raise Stop(StopReason.wall_time) from None

    def _keep(self, text: str) -> None:
        """Adds `text`, the received part of an interrupted reply, to the conversation; does nothing if it is ""."""
        if text:
            self._charge(Usage(), text)
            self._add(Message(role="assistant", content=text, finish_reason=CUT))

    def _charge(self, usage: Usage, text: str) -> None:
        """Adds the tokens of a request and its reply to the bill. Numbers that the server does not report are
        estimated, rather too high than too low."""
        written = usage.completion_tokens or int(len(text) / CHARACTERS_PER_TOKEN)
        self._generated += written
        counted = bool(usage.prompt_tokens and usage.completion_tokens)
        self._bill.add(usage.prompt_tokens or self._conversation.tokens(), written, estimated=not counted)

    def _most_tokens(self) -> int:
        """Returns the number of tokens that the next reply may have. Raises Stop if the remaining money pays for fewer
        than LEAST_REPLY tokens."""
        paid = self._bill.room(self._conversation.tokens())
        if paid < LEAST_REPLY:
            raise Stop(StopReason.money)
        return int(min(self._room.reply, self._limits.tokens - self._generated, paid))

    def _is_over(self) -> bool:
        return self._context.cancel.is_set() or time.monotonic() > self._deadline

    def _check_limits(self) -> None:
        if self._context.cancel.is_set():
            raise Cancelled("cancelled")
        if time.monotonic() > self._deadline:
            raise Stop(StopReason.wall_time)
        if self._conversation.turn > self._limits.turns:
            raise Stop(StopReason.turns)
        if self._generated >= self._limits.tokens or not self._conversation.fits():
            raise Stop(StopReason.tokens)

    def _check_progress(self, reply: Message, *, failed: bool) -> None:
        """Checks whether the same problem has occurred in `patience` replies in a row. Then sends the worked example,
        and raises Stop if the next reply has this problem too; without an example raises Stop at once. `failed` means
        that the reply had no call, or a problem in each of its calls."""
        problem = _NUMBER.sub("#", self._problems[0]) if failed else ""
        again = problem == self._problem
        self._stuck = (self._stuck + 1 if again else 1) if problem else 0
        self._problem = problem
        if self._stuck >= self._profile.patience + bool(self._profile.example):
            last = " ".join((reply.content or reply.reasoning).split())[:MOST_SHOWN]
            raise Stop(
                StopReason.no_progress, f"{self._problems[0]}, {self._stuck} times in a row; last reply: {last!r}"
            )
        words = [self._profile.nudge] if problem == NO_CALL else []
        words += [UNFINISHED[reply.finish_reason]] if words and reply.finish_reason in UNFINISHED else []
        words += [self._profile.example] if self._stuck == self._profile.patience else []
        if words:
            self._add(Message(role="user", content=" ".join(words)))

    def _done(self, call: ParsedCall, reply: Message) -> Generator[PolicyAction, None, str]:
        """Runs one call and returns the observation for the model; an error in the call is an observation, too."""
        if call.problem:
            self._problems.append(call.problem)
            return call.problem
        tool = ALL[call.name]
        try:
            arguments = tool.read(call.arguments)
            if isinstance(arguments, EvaluateArguments):
                return (yield from self._evaluated(reply, Tier(arguments.tier), counters=arguments.counters))
            if isinstance(arguments, FinishArguments):
                yield PolicyAction(message=arguments.summary, finished=True)
            return tool.run(arguments, self._context) if tool.run is not None else ""
        except (ToolError, PathRefused) as error:
            self._problems.append(str(error))
            return f"error: {error}"

    def _evaluated(self, reply: Message, tier: Tier, *, counters: bool) -> Generator[PolicyAction, None, str]:
        try:
            candidate = self._candidate()
        except DirectiveError as error:
            return self._profile.plan_error(error)
        best_ms = EvaluatedCandidates(self._view.steps).best_call_ms
        yield PolicyAction(
            message=reply.content[:MOST_SAID], candidates=(candidate,), tier=tier, conversation=self._number
        )
        evaluation = self._latest(candidate)
        self._reported = evaluation.candidate
        report = self._profile.report(evaluation, self._view, candidate, best_ms)
        return "\n".join([report, *self._counted(candidate)]) if counters and evaluation.correct else report

    def _counted(self, candidate: Candidate) -> list[str]:
        try:
            return [one.text() for one in self._context.counters(candidate)]
        except MissingError as error:
            return [f"no counters: {error.cause}"]

    def _candidate(self) -> Candidate:
        """Returns the candidate made of the C++ and CUDA files in the top folder of the workspace. Raises
        DirectiveError."""
        workspace = self._context.workspace
        names = [entry.path for entry in workspace.files() if "/" not in entry.path]
        wanted = [name for name in names if name.endswith((".cpp", ".cu", ".cuh", ".h"))]
        files = {name: workspace.read(name) for name in wanted}
        return self._profile.candidate(files, self._view)

    def _latest(self, candidate: Candidate) -> Evaluation:
        """Returns the newest evaluation of a candidate, from this step or an earlier one."""
        key = candidate.hash()
        return next(
            evaluation
            for step in reversed(self._view.steps)
            for evaluation in step.evaluations
            if evaluation.candidate == key
        )
