"""Inlay hints: the time and share of each line of a profiled class, at the line's end."""

from __future__ import annotations

from lsprotocol.types import InlayHint, MarkupContent, MarkupKind, Range

from kernel_assistant.records.line_profile import LineProfile, LineTime
from kernel_assistant_lsp.features.hover import about_line
from kernel_assistant_lsp.features.places import is_edited, rows_at
from kernel_assistant_lsp.features.words import duration, share
from kernel_assistant_lsp.text.snapshot import Snapshot


def hints(snapshot: Snapshot, profile: LineProfile, within: Range | None = None) -> list[InlayHint]:
    """Return a hint for each profiled statement that was not edited since. `within` is the range that the client
    shows; None for the whole document."""
    edited = is_edited(snapshot, profile)
    inlay_hints = []
    for line, row in sorted(rows_at(snapshot, profile).items()):
        end = line + row.end_line - row.line
        if within is not None and not within.start.line <= end <= within.end.line:
            continue
        inlay_hints.append(
            InlayHint(
                position=snapshot.position(snapshot.line_end(end)),
                label=_label(row),
                padding_left=True,
                tooltip=MarkupContent(MarkupKind.Markdown, about_line(row, profile, edited=edited)),
            )
        )
    return inlay_hints


def _label(row: LineTime) -> str:
    return f"{duration(row.ms)} · {share(row.share)}"
