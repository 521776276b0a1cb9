"""Hints for code that is slower than it has to be, from the syntax tree alone. See docs/diagnostics.md."""

from __future__ import annotations

from kernel_assistant.source.lint.find import find_hints
from kernel_assistant.source.lint.hint import Hint, Machine
from kernel_assistant.source.lint.rules import RULES

__all__ = ["RULES", "Hint", "Machine", "find_hints"]
