"""Writes, without running anything, what a small model should answer for a task (docs/teacher.md)."""

from __future__ import annotations

from kernel_assistant_training.teacher.registry import answers
from kernel_assistant_training.teacher.text.answer import Answer

__all__ = ["Answer", "answers"]
