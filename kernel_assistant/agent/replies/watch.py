"""Watches a reply while the model writes it: reports progress, keeps the text received so far, and ends a reply that
repeats itself."""

from __future__ import annotations

import time
from collections.abc import Callable

from kernel_assistant.events import AnyEvent, Progress
from kernel_assistant.policy.client import ReplySoFar

#: Seconds between two signs of life, and characters of the last line that are shown.
EVERY_SECONDS, MOST_LINE = 5.0, 80
#: A reply repeats itself if its end is one passage, this often and over so many characters. A table of zeros in a
#: source is shorter.
REPEATS, REPEATED_CHARACTERS = 5, 2000
#: Longest passage, and the part of it by which a repeat is found.
LONGEST, FOUND_BY = 2400, 60


class ReplyWatch:
    """Watches one reply. Its caller calls `waiting` while nothing arrives, and `seen` with each received part. `text`
    is the text received so far."""

    def __init__(self, emit: Callable[[AnyEvent], None], turn: int, now: Callable[[], float] = time.monotonic) -> None:
        self._emit, self._turn, self._now = emit, turn, now
        self._began = self._told = now()
        self.text = ""

    def waiting(self) -> None:
        """Reports for how many seconds the model has sent nothing; does nothing once the first token has arrived."""
        if not self.text:
            self._tell(lambda: f"nothing yet, {self._now() - self._began:.0f} s")

    def seen(self, partial: ReplySoFar) -> bool:
        """Stores the text so far and reports the number of tokens, their rate and the last line. Returns whether to end
        the reply, because it repeats itself."""
        self.text = partial.text
        self._tell(lambda: f"{partial.tokens} tokens, {partial.rate:.0f} a second: {_last_line(partial.text)}")
        return repeats_itself(partial.text)

    def _tell(self, words: Callable[[], str]) -> None:
        if self._now() - self._told >= EVERY_SECONDS:
            self._told = self._now()
            self._emit(Progress(phase="model", message=f"model, turn {self._turn}: {words()}"))


def repeats_itself(text: str) -> bool:
    """Whether the text ends with one passage, REPEATS times or more, over REPEATED_CHARACTERS characters or more."""
    end = text[-REPEATS * LONGEST :]
    before = len(end)
    while before > 0:
        before = end.rfind(end[-FOUND_BY:], 0, before + FOUND_BY - 1)
        period = len(end) - FOUND_BY - before
        span = max(REPEATS * period, REPEATED_CHARACTERS)
        if before < 0 or span > len(end):
            return False
        if end[-span + period :] == end[-span:-period]:
            return True
    return False


def _last_line(text: str) -> str:
    lines = text.rstrip().splitlines()
    return lines[-1].strip()[-MOST_LINE:] if lines else ""
