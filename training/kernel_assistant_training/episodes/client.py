"""A client that replaces a language model: it sends the planned replies of a lesson one after another."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from kernel_assistant.errors import Cancelled
from kernel_assistant.policy.client import Request
from kernel_assistant.policy.embedded import CONTEXT_TOKENS
from kernel_assistant.records.transcript import Message, Usage
from kernel_assistant_training.conversation import Encoder
from kernel_assistant_training.lessons.lesson import Lesson, PlannedReply, ReplyKind
from kernel_assistant_training.tokenizer import load


class LessonFailed(Exception):
    """The environment's answer to a planned reply is not the one that the lesson expects. `refused` is True if a reply
    that should be correct was judged wrong, and False if a deliberate mistake had no effect. `saying` is the reply."""

    def __init__(self, reply: PlannedReply, observation: str) -> None:
        super().__init__(observation)
        self.saying, self.observation = reply, observation
        self.refused = reply.kind is not ReplyKind.fault and not observation.startswith("ok ")


class LessonClient:
    """A `ModelClient` that answers with the planned replies of a lesson. `said` lists the replies that it has given, in
    order."""

    name, context_tokens = "lesson", CONTEXT_TOKENS

    def __init__(self, lesson: Lesson) -> None:
        self._lesson = lesson
        self.said: list[PlannedReply] = []

    def complete(self, request: Request, cancelled: Callable[[], bool]) -> Message:
        """Returns the lesson's next reply, with counted tokens. Raises LessonFailed if the last message (the
        environment's answer) is not the one that the lesson expects, and Cancelled if `cancelled` returns True."""
        if cancelled():
            raise Cancelled("cancelled")
        reply = self._next(request.messages[-1].content)
        self.said.append(reply)
        # Counted, as a server does. The agent's estimate is too high for text whose lines are a few tokens each, and
        # ends long lessons early.
        usage = Usage(
            prompt_tokens=len(_encoder().prompt(request.messages)),
            completion_tokens=len(_encoder().reply(reply.text)) + 1,
        )
        return Message(role="assistant", content=reply.text, finish_reason="stop", usage=usage)

    def _next(self, observation: str) -> PlannedReply:
        if not self.said:
            return self._lesson.sayings[0]
        reply = self._lesson.next(len(self.said) - 1, observation)
        if reply is None:
            raise LessonFailed(self.said[-1], observation)
        return reply

    def close(self) -> None:
        """Does nothing: there is nothing to release."""


@cache
def _encoder() -> Encoder:
    return Encoder(load())
