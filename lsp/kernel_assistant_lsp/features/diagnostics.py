"""Hints of `kernel_assistant.source.lint` as diagnostics of a document."""

from __future__ import annotations

from collections.abc import Collection

from lsprotocol.types import CodeDescription, Diagnostic, DiagnosticSeverity, Position, Range

from kernel_assistant.source.lint import Hint, find_hints
from kernel_assistant.source.lint.machine import machine_of
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant_lsp.snapshot import Snapshot, units

SOURCE = "kernel-assistant"


def find(
    snapshot: Snapshot, facts: DeviceFacts | None, *, tf32_gain: str = "", ignore: Collection[str] = ()
) -> list[Diagnostic]:
    """Hints of the document. `tf32_gain` is what `session.gains.tf32_gain` gives, `ignore` the codes that settings
    turn off. Nothing is raised, whatever the text is."""
    hints = find_hints(snapshot.text, machine_of(facts, tf32_gain), ignore)
    return [_diagnostic(snapshot, hint) for hint in hints]


def _diagnostic(snapshot: Snapshot, hint: Hint) -> Diagnostic:
    return Diagnostic(
        range=Range(
            _position(snapshot, hint.line - 1, hint.column), _position(snapshot, hint.end_line - 1, hint.end_column)
        ),
        message=hint.message,
        severity=DiagnosticSeverity.Hint,
        code=hint.code,
        code_description=CodeDescription(hint.href),
        source=SOURCE,
        data={"class": hint.class_name},
    )


def _position(snapshot: Snapshot, line: int, column: int) -> Position:
    """Of a column that counts bytes of UTF-8, as those of syntax trees do."""
    before = snapshot.line(line).encode("utf-8", "surrogatepass")[:column].decode("utf-8", "ignore")
    return Position(line, units(before, snapshot.encoding))
