"""Quick fixes: turn off one hint by a comment, and remove the label "unverified" from a verified source. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from lsprotocol.types import CodeAction, CodeActionKind, Diagnostic, WorkspaceEdit

from kernel_assistant_lsp.features.diagnostics import SOURCE
from kernel_assistant_lsp.features.ghost import LABEL, without_labels
from kernel_assistant_lsp.text.edits import workspace_edit
from kernel_assistant_lsp.text.snapshot import Snapshot

KIND = CodeActionKind.QuickFix


def of_hints(snapshot: Snapshot, diagnostics: Sequence[Diagnostic], *, versioned: bool) -> list[CodeAction]:
    """Returns for each of our hints a quick fix, which inserts a comment above the hint's line that turns it off. A
    hint has no fix if the line before ends with a backslash, because no comment is possible there."""
    actions = []
    for hint in diagnostics:
        line = hint.range.start.line
        if hint.source == SOURCE and line < len(snapshot.starts) and not snapshot.line(line - 1).endswith("\\"):
            text = snapshot.line(line)
            indent = text[: len(text) - len(text.lstrip(" \t\f"))]
            start = snapshot.starts[line]
            end = "\r\n" if "\r\n" in snapshot.text else "\n"
            comment = f"{indent}# kernel-assistant: ignore[{hint.code}]{end}"
            edit = workspace_edit(
                snapshot, snapshot.text[:start] + comment + snapshot.text[start:], versioned=versioned
            )
            actions.append(_fix(f"Ignore {hint.code} here", edit, [hint]))
    return actions


def of_labels(snapshot: Snapshot, *, passed: bool, versioned: bool) -> list[CodeAction]:
    """Returns the quick fix that removes all comments "unverified" from a CUDA source, if `passed` is True (a candidate
    with this source was found correct); else []."""
    if not passed or LABEL not in snapshot.text:
        return []
    edit = workspace_edit(snapshot, without_labels(snapshot.text), versioned=versioned)
    return [_fix("Remove the labels: this source has passed", edit, [])]


def _fix(title: str, edit: WorkspaceEdit, diagnostics: list[Diagnostic]) -> CodeAction:
    return CodeAction(title=title, kind=KIND, edit=edit, diagnostics=diagnostics or None)
