"""TeacherClient: a language model for the loop that says what a lesson intends."""

from __future__ import annotations

from collections.abc import Callable

from kernel_assistant.errors import Cancelled
from kernel_assistant.policy.client import Request
from kernel_assistant.policy.embedded import CONTEXT_TOKENS
from kernel_assistant.records.transcript import Message
from kernel_assistant_training.episodes.lesson import Kind, Lesson, Saying


class LessonFailed(Exception):
    """What was heard contradicts the lesson: a fault has no consequence, or what should be right is `refused`."""

    def __init__(self, saying: Saying, observation: str) -> None:
        super().__init__(observation)
        self.saying, self.observation = saying, observation
        self.refused = saying.kind is not Kind.fault and not observation.startswith(("ok ", "not slower"))


class TeacherClient:
    """See `ModelClient`. `said` are the sayings of the replies so far, in order."""

    name, context_tokens = "teacher", CONTEXT_TOKENS

    def __init__(self, lesson: Lesson) -> None:
        self._lesson = lesson
        self.said: list[Saying] = []

    def complete(self, request: Request, cancelled: Callable[[], bool]) -> Message:
        """The next saying. Raises LessonFailed, and Cancelled."""
        if cancelled():
            raise Cancelled("cancelled")
        saying = self._next(request.messages[-1].content)
        self.said.append(saying)
        return Message(role="assistant", content=saying.text, finish_reason="stop")

    def _next(self, heard: str) -> Saying:
        if not self.said:
            return self._lesson.sayings[0]
        found = self._lesson.next(len(self.said) - 1, heard)
        if found is None:
            raise LessonFailed(self.said[-1], heard)
        return found

    def close(self) -> None:
        """Nothing to give back."""
