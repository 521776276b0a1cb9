"""The tool calls of a random model: some work in its workspace, then reading files until its context is full."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from kernel_assistant.environment.builds.headers import shipped
from kernel_assistant.serving.template import write_call
from kernel_assistant_training.episodes.subject import LessonTask
from kernel_assistant_training.lessons.lesson import candidate_file
from kernel_assistant_training.ppo.chat.chat_format_template import TemplateChatFormat

#: The share of the context that is filled with files, and most tokens of one file of 400 lines.
SHARE, FILE = 0.9, 6000
#: Most calls in one reply.
MOST = 12


class Script:
    """Writes the calls of each reply. By the sampled tokens, about half of the episodes write a correct kernel."""

    def __init__(self, base: Path, subject: LessonTask, target: str, context: int) -> None:
        self._chat_format = TemplateChatFormat.load(base)
        self.ends = self._chat_format.ends
        self._context = context
        self._file, self._sources = candidate_file(target), self.sources(subject)
        self._files = sorted(shipped(), key=lambda name: -len(shipped()[name]))
        self._answer = self._chat_format.tokens("<|head|>assistant<|/head|>", plain=False)

    @staticmethod
    def sources(subject: LessonTask) -> tuple[str, str]:
        """The source of a correct kernel with the graph's own numbers, and one that does not compile."""
        known = {**subject.task.sizes, **subject.task.constants}
        right = re.sub(r"\b[CD]\d+\b", lambda name: repr(known[name[0]]), subject.answers[0].source)
        right = right.replace("#include", '#include "plan.h"\n#include', 1)
        return right, right.replace("{\n", "{\n  undeclared;\n", 1)

    def call(self, prompt: Sequence[int]) -> list[int]:
        """The tokens of the next calls and the end token."""
        ids, answer = list(prompt), self._answer
        positions = [position for position, one in enumerate(ids) if one == answer[0]]
        turn = sum(ids[position : position + len(answer)] == answer for position in positions) - 1
        words = "\n".join(self._calls(turn, ids))
        return [*self._chat_format.tokens(words, plain=True), self.ends[0]]

    def _calls(self, turn: int, prompt: Sequence[int]) -> list[str]:
        if turn == 0:
            written = json.dumps({"path": self._file, "text": self._sources[sum(prompt) % 2]})
            return [write_call("list", "{}"), write_call("write", written)]
        if turn == 1:
            return [write_call("evaluate", "{}")]
        room = int(SHARE * self._context - len(prompt)) // FILE
        if room < 1 or turn > len(self._files):
            return [write_call("finish", "{}")]
        first = MOST * (turn - 2)
        return [self._read(first + number) for number in range(min(room, MOST))]

    def _read(self, number: int) -> str:
        name, part = self._files[number % len(self._files)], number // len(self._files)
        return write_call("read", json.dumps({"path": f"reference/include/{name}", "first_line": 1 + 100 * part}))
