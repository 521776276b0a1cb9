"""From a text before and a text after to the smallest edits of an editor. Pure."""

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
from kernel_assistant_lsp.snapshot import Snapshot


def text_edits(snapshot: Snapshot, after: str) -> list[TextEdit]:
    """Edits of whole lines that make `snapshot.text` into `after`: a cursor elsewhere keeps its place."""
    old, new = split_lines(snapshot.text), split_lines(after)
    head = _common(old, new)
    tail = _common(old[: head - 1 if head else None : -1], new[: head - 1 if head else None : -1])
    starts = list(accumulate(map(len, old), initial=0))
    # Comparing is quadratic at worst, and almost everything is as it was.
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
    """How many lines both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((number for number, (a, b) in pairs if a != b), min(len(one), len(other)))


def workspace_edit(snapshot: Snapshot, after: str, *, versioned: bool) -> WorkspaceEdit:
    """With the version that it is for where the client understands that, so that it refuses one that came too late."""
    edits = text_edits(snapshot, after)
    if not versioned:
        return WorkspaceEdit(changes={snapshot.uri: edits})
    document = OptionalVersionedTextDocumentIdentifier(uri=snapshot.uri, version=snapshot.version)
    return WorkspaceEdit(document_changes=[TextDocumentEdit(text_document=document, edits=list(edits))])
