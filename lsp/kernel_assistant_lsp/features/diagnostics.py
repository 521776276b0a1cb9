"""Converts hints (advice about slow code, from `kernel_assistant.source.lint`) to diagnostics of a document."""

from __future__ import annotations

from collections.abc import Collection

from lsprotocol.types import CodeDescription, Diagnostic, DiagnosticSeverity, Position, Range

from kernel_assistant.source.lint import Hint, find_hints
from kernel_assistant.source.lint.hint import machine_of
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant_lsp.text.snapshot import Snapshot, units

SOURCE = "kernel-assistant"


def find(
    snapshot: Snapshot, facts: DeviceFacts | None, *, tf32_gain: str = "", ignore: Collection[str] = ()
) -> list[Diagnostic]:
    """Returns the hints of a document (places where the code of a module class is slower than it has to be) as
    diagnostics. `facts` is None if there is no device. `tf32_gain` describes how much TF32 gained in earlier jobs, and
    is part of the hint about TF32; "" if that is not known. `ignore` has the codes of hints that settings turn off.
    Raises nothing, whatever the text is."""
    hints = find_hints(snapshot.text, machine_of(facts, tf32_gain), ignore)
    return [_diagnostic(snapshot, hint) for hint in hints]


def class_of(one: Diagnostic) -> str:
    """Return the name of the class to which a hint belongs."""
    return str((one.data or {}).get("class", ""))


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
    """Return the position of a column that is given in UTF-8 bytes, as in syntax trees."""
    before = snapshot.line(line).encode("utf-8", "surrogatepass")[:column].decode("utf-8", "ignore")
    return Position(line, units(before, snapshot.encoding))
