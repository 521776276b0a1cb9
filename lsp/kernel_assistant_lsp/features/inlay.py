"""Inlay hints: the time and share of each line of a profiled class, at the line's end."""

from __future__ import annotations

from lsprotocol.types import InlayHint, MarkupContent, MarkupKind, Range

from kernel_assistant.records.line_profile import LineProfile, LineTime
from kernel_assistant_lsp.features.hover import about_line
from kernel_assistant_lsp.features.places import is_edited, rows_at
from kernel_assistant_lsp.features.words import duration, share
from kernel_assistant_lsp.snapshot import Snapshot


def hints(snapshot: Snapshot, profile: LineProfile, within: Range | None = None) -> list[InlayHint]:
    """One for each statement that ran and that the text still has as it was. `within` is what the editor shows."""
    edited = is_edited(snapshot, profile)
    found = []
    for line, row in sorted(rows_at(snapshot, profile).items()):
        end = line + row.end_line - row.line
        if within is not None and not within.start.line <= end <= within.end.line:
            continue
        found.append(
            InlayHint(
                position=snapshot.position(snapshot.line_end(end)),
                label=_label(row),
                padding_left=True,
                tooltip=MarkupContent(MarkupKind.Markdown, about_line(row, profile, edited=edited)),
            )
        )
    return found


def _label(row: LineTime) -> str:
    return f"{duration(row.ms)} · {share(row.share)}"
