"""Finds comments that suppress hints: `# kernel-assistant: ignore[KA001]` in a line, above a class, or in the head of
the file."""

from __future__ import annotations

import re

from kernel_assistant.source.lint.hint import Hint

_COMMENT = re.compile(r"#\s*kernel-assistant\s*:\s*ignore\b\s*(?:\[([^\]\n]*)\])?")


class Suppressions:
    """The suppressing comments of one text. A comment without codes in brackets suppresses every hint."""

    def __init__(self, text: str) -> None:
        self._lines: dict[int, frozenset[str]] = {}
        self._alone: dict[int, frozenset[str]] = {}
        self._whole: frozenset[str] = frozenset()
        if "kernel-assistant" not in text:
            return
        for number, line in enumerate(text.split("\n"), 1):
            match = _COMMENT.search(line) if "ignore" in line else None
            if match:
                codes = frozenset(code.strip().upper() for code in (match[1] or "ALL").split(",") if code.strip())
                alone = not line[: match.start()].strip()
                (self._alone if alone else self._lines)[number] = codes
        self._whole = self._of_file(text)

    def covers(self, hint: Hint, first: int, statement: int) -> bool:
        """Whether a comment suppresses `hint`. The class of the hint begins at line `first`, decorators included; its
        `class` statement is at line `statement`."""
        if not self._lines and not self._alone:
            return False
        if _names(self._whole, hint.code):
            return True
        if any(_names(self._lines.get(line, frozenset()), hint.code) for line in range(hint.line, hint.end_line + 1)):
            return True
        of_class = any(_names(self._lines.get(line, frozenset()), hint.code) for line in range(first, statement + 1))
        return of_class or self._above(hint.line, hint.code) or self._above(first, hint.code)

    def _above(self, line: int, code: str) -> bool:
        """Whether one of the suppressing comments directly above `line` covers `code`."""
        line -= 1
        while line in self._alone:
            if _names(self._alone[line], code):
                return True
            line -= 1
        return False

    def _of_file(self, text: str) -> frozenset[str]:
        """Returns the codes of hints that comments at the top of the file suppress for the whole file. These are the
        comments before the first statement, without those directly above this statement."""
        codes: frozenset[str] = frozenset()
        waiting: frozenset[str] = frozenset()
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip():
                codes, waiting = codes | waiting, frozenset()
            elif line.lstrip().startswith("#"):
                waiting |= self._alone.get(number, frozenset())
            else:
                break
        return codes


def _names(codes: frozenset[str], code: str) -> bool:
    return code in codes or "ALL" in codes
