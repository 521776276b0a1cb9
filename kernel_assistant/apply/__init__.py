"""Applies a verified result to the user's file and takes it back. See docs/apply.md."""

from __future__ import annotations

from kernel_assistant.apply.applied import AppliedClass, find_applied
from kernel_assistant.apply.apply import Applied, apply_result
from kernel_assistant.apply.diff import unified_diff
from kernel_assistant.apply.edit import Edit, Hunk, plan_edit
from kernel_assistant.apply.export import KINDS, Exported, export
from kernel_assistant.apply.model_new import export_model_new
from kernel_assistant.apply.outside import apply_outside, is_installed, undo_outside
from kernel_assistant.apply.provenance import Options
from kernel_assistant.apply.undo import Undone, undo
from kernel_assistant.apply.variants import Variants, applied_variants

__all__ = [
    "KINDS",
    "Applied",
    "AppliedClass",
    "Edit",
    "Exported",
    "Hunk",
    "Options",
    "Undone",
    "Variants",
    "applied_variants",
    "apply_outside",
    "apply_result",
    "export",
    "export_model_new",
    "find_applied",
    "is_installed",
    "plan_edit",
    "undo",
    "undo_outside",
    "unified_diff",
]
