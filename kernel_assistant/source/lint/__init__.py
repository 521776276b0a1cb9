"""Hints for code that is slower than necessary, from the syntax tree alone. See docs/diagnostics.md."""

from __future__ import annotations

from kernel_assistant.source.lint.find import find_hints
from kernel_assistant.source.lint.hint import DeviceTraits, Hint
from kernel_assistant.source.lint.rules import RULES

__all__ = ["RULES", "DeviceTraits", "Hint", "find_hints"]
