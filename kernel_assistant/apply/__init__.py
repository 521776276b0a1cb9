"""Applies a verified result to the user's file, and undoes that. See docs/apply.md."""

from __future__ import annotations

from kernel_assistant.apply.applied import AppliedClass, find_applied
from kernel_assistant.apply.apply import ApplyResult, apply_result
from kernel_assistant.apply.diff import unified_diff
from kernel_assistant.apply.edit import Edit, Hunk, plan_edit
from kernel_assistant.apply.exporting.export import KINDS, ExportResult, export
from kernel_assistant.apply.exporting.model_new import export_model_new
from kernel_assistant.apply.outside import (
    apply_outside,
    is_installed,
    packages_of,
    path_in_library,
    replaced_in,
    undo_outside,
)
from kernel_assistant.apply.provenance import AppliedOptions
from kernel_assistant.apply.undo import UndoResult, undo
from kernel_assistant.apply.variants import OriginalAndApplied, applied_variants

__all__ = [
    "KINDS",
    "AppliedClass",
    "AppliedOptions",
    "ApplyResult",
    "Edit",
    "ExportResult",
    "Hunk",
    "OriginalAndApplied",
    "UndoResult",
    "applied_variants",
    "apply_outside",
    "apply_result",
    "export",
    "export_model_new",
    "find_applied",
    "is_installed",
    "packages_of",
    "path_in_library",
    "plan_edit",
    "replaced_in",
    "undo",
    "undo_outside",
    "unified_diff",
]
