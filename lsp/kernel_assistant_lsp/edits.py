"""From a text before and a text after to the smallest edits of an editor. Pure."""

from __future__ import annotations

import difflib

from lsprotocol.types import (
    OptionalVersionedTextDocumentIdentifier,
    TextDocumentEdit,
    TextEdit,
    WorkspaceEdit,
)

from kernel_assistant_lsp.snapshot import Snapshot


def text_edits(snapshot: Snapshot, after: str) -> list[TextEdit]:
    """Edits of whole lines that make `snapshot.text` into `after`: a cursor elsewhere keeps its place."""
    before_lines = _lines(snapshot.text)
    after_lines = _lines(after)
    starts = [0]
    for line in before_lines:
        starts.append(starts[-1] + len(line))
    blocks = difflib.SequenceMatcher(None, before_lines, after_lines, autojunk=False).get_opcodes()
    return [
        TextEdit(range=snapshot.range(starts[low], starts[high]), new_text="".join(after_lines[new_low:new_high]))
        for kind, low, high, new_low, new_high in blocks
        if kind != "equal"
    ]


def workspace_edit(snapshot: Snapshot, after: str, *, versioned: bool) -> WorkspaceEdit:
    """With the version that it is for where the client understands that, so that it refuses one that came too late."""
    edits = text_edits(snapshot, after)
    if not versioned:
        return WorkspaceEdit(changes={snapshot.uri: edits})
    document = OptionalVersionedTextDocumentIdentifier(uri=snapshot.uri, version=snapshot.version)
    return WorkspaceEdit(document_changes=[TextDocumentEdit(text_document=document, edits=list(edits))])


def _lines(text: str) -> list[str]:
    from kernel_assistant.apply.text import split_lines

    return split_lines(text)
