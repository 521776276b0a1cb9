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

#: Of the context, what is filled by files; and what one file of 400 lines may take of it, in tokens.
SHARE, FILE = 0.9, 6000
#: Calls in one reply.
MOST = 12


class Script:
    """Half of the episodes write a right kernel, by what they sampled first."""

    def __init__(self, base: Path, subject: Subject, target: str, context: int) -> None:
        self._speech = TemplateSpeech.load(base)
        self.ends = self._speech.ends
        self._context = context
        self._file, self._sources = candidate_file(target), self.sources(subject)
        self._files = sorted(shipped(), key=lambda name: -len(shipped()[name]))
        self._answer = self._speech.tokens("<|head|>assistant<|/head|>", plain=False)

    @staticmethod
    def sources(subject: Subject) -> tuple[str, str]:
        """A right one with the graph's own numbers, and one that does not compile."""
        known = {**subject.task.sizes, **subject.task.constants}
        right = re.sub(r"\b[CD]\d+\b", lambda name: repr(known[name[0]]), subject.answers[0].source)
        right = right.replace("#include", '#include "plan.h"\n#include', 1)
        return right, right.replace("{\n", "{\n  undeclared;\n", 1)

    def call(self, prompt: Sequence[int]) -> list[int]:
        """The tokens of the next calls, and the end of the reply."""
        ids, answer = list(prompt), self._answer
        places = [place for place, one in enumerate(ids) if one == answer[0]]
        turn = sum(ids[place : place + len(answer)] == answer for place in places) - 1
        words = "\n".join(self._calls(turn, ids))
        return [*self._speech.tokens(words, plain=True), self.ends[0]]

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
