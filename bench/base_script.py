"""What a random model calls: some work in its workspace, then files until its context is full."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from kernel_assistant.environment.headers import shipped
from kernel_assistant.serving.template import write_call
from kernel_assistant_training.episodes.lesson import candidate_file
from kernel_assistant_training.episodes.subject import Subject
from kernel_assistant_training.ppo.speech_template import TemplateSpeech

#: Of the context, for a file of 400 lines and the reply that asks for it.
SHARE = 0.25


class Script:
    """One call a reply. Half of the episodes write a right kernel, by what they sampled first."""

    def __init__(self, base: Path, subject: Subject, target: str, context: int) -> None:
        self._speech = TemplateSpeech.load(base)
        self.ends = self._speech.ends
        self._context = context
        self._file, self._sources = candidate_file(target), self.sources(subject)
        self._files = sorted(shipped(), key=lambda name: -len(shipped()[name]))
        self._head = self._speech.tokens("<|head|>", plain=False)[0]

    @staticmethod
    def sources(subject: Subject) -> tuple[str, str]:
        """A right one with the graph's own numbers, and one that does not compile."""
        known = {**subject.task.sizes, **subject.task.constants}
        right = re.sub(r"\b[CD]\d+\b", lambda name: repr(known[name[0]]), subject.answers[0].source)
        right = right.replace("#include", '#include "plan.h"\n#include', 1)
        return right, right.replace("{\n", "{\n  undeclared;\n", 1)

    def call(self, prompt: Sequence[int]) -> list[int]:
        """The tokens of the next call, and the end of the reply."""
        turn = (list(prompt).count(self._head) - 3) // 2
        return [*self._speech.tokens(self._words(turn, prompt), plain=True), self.ends[0]]

    def _words(self, turn: int, prompt: Sequence[int]) -> str:
        if turn == 0:
            return write_call("list", "{}")
        if turn == 1:
            text = self._sources[sum(prompt) % 2]
            return write_call("write", json.dumps({"path": self._file, "text": text}))
        if turn == 2:
            return write_call("evaluate", "{}")
        if len(prompt) > (1 - SHARE) * self._context:
            return write_call("finish", "{}")
        number = turn - 3
        name, part = self._files[number % len(self._files)], number // len(self._files)
        return write_call("read", json.dumps({"path": f"reference/include/{name}", "first_line": 1 + 100 * part}))
