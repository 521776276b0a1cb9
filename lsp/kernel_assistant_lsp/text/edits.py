"""Computes the smallest editor edits that turn one text into another. Pure."""

from __future__ import annotations

import difflib
from itertools import accumulate

from lsprotocol.types import (
    OptionalVersionedTextDocumentIdentifier,
    TextDocumentEdit,
    TextEdit,
    WorkspaceEdit,
)

from kernel_assistant.apply.text import split_lines
from kernel_assistant_lsp.text.snapshot import Snapshot


def text_edits(snapshot: Snapshot, after: str) -> list[TextEdit]:
    """Return edits of whole lines that turn `snapshot.text` into `after`. Equal lines are not edited, so that the
    cursor stays in them."""
    old, new = split_lines(snapshot.text), split_lines(after)
    head = _common(old, new)
    tail = _common(old[: head - 1 if head else None : -1], new[: head - 1 if head else None : -1])
    starts = list(accumulate(map(len, old), initial=0))
    # The comparison is quadratic at worst, so the equal lines at both ends are cut off first.
    blocks = difflib.SequenceMatcher(
        None, old[head : len(old) - tail], new[head : len(new) - tail], autojunk=False
    ).get_opcodes()
    return [
        TextEdit(
            range=snapshot.range(starts[head + low], starts[head + high]),
            new_text="".join(new[head + new_low : head + new_high]),
        )
        for kind, low, high, new_low, new_high in blocks
        if kind != "equal"
    ]


def _common(one: list[str], other: list[str]) -> int:
    """Return the number of equal lines at the start of both lists."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((number for number, (a, b) in pairs if a != b), min(len(one), len(other)))


def workspace_edit(snapshot: Snapshot, after: str, *, versioned: bool) -> WorkspaceEdit:
    """Returns the edits that turn `snapshot` into the text `after`, as the client needs them. With `versioned` they
    name the document's version, so that the client refuses them if the text has changed since."""
    edits = text_edits(snapshot, after)
    if not versioned:
        return WorkspaceEdit(changes={snapshot.uri: edits})
    document = OptionalVersionedTextDocumentIdentifier(uri=snapshot.uri, version=snapshot.version)
    return WorkspaceEdit(document_changes=[TextDocumentEdit(text_document=document, edits=list(edits))])
