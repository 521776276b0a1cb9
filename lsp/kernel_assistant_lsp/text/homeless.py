"""Refuses classes that are not in a file, but in an unsaved document or a notebook cell. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kernel_assistant.errors import UsageError
from kernel_assistant.source.outline import Outline, outline
from kernel_assistant_lsp.text.snapshot import Snapshot


def in_words(snapshot: Snapshot, name: str) -> str:
    """Return what the user must do before class `name` can be optimized; "" for a class in a file."""
    if snapshot.is_file:
        return ""
    if "#" in snapshot.uri:
        return f"move {name} from the notebook to a .py file to optimize it"
    return f"save this as a .py file to optimize {name}"


def check_file(snapshot: Snapshot, name: str) -> None:
    """Raise UsageError for a class that is not in a file."""
    if not snapshot.is_file:
        where = "a notebook" if "#" in snapshot.uri else "a document that is not saved"
        raise UsageError(f"{name} is in {where}, and kernels are kept beside a file", in_words(snapshot, name))


def outline_of_cell(snapshot: Snapshot, others: Iterable[Snapshot]) -> Outline:
    """Returns the outline (module classes and syntax errors) of one notebook cell. The cells `others` are parsed with
    it, because they have its imports."""
    above = "".join(f"{one.text}\n" for one in others)
    lines = above.count("\n")
    whole = outline(above + snapshot.text)
    mine = [one for one in whole.classes if one.line > lines]
    faults = [one for one in whole.faults if one.first > lines]
    return Outline(
        tuple(replace(one, line=one.line - lines, end_line=one.end_line - lines) for one in mine),
        tuple(
            replace(one, first=one.first - lines, last=one.last - lines, line=max(1, one.line - lines))
            for one in faults
        ),
    )
