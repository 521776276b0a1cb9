"""Caches the outlines (module classes and syntax errors) of open documents. Long documents are parsed only when the
user pauses typing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernel_assistant.source.find import ModuleClass
from kernel_assistant.source.outline import Outline, outline
from kernel_assistant_lsp.text.classes import moved
from kernel_assistant_lsp.text.snapshot import Snapshot

#: Characters. A text up to this size is parsed at once, which takes a few milliseconds.
SMALL = 24_000
_NOTHING = Outline()


@dataclass(frozen=True)
class _Parsed:
    snapshot: Snapshot
    outline: Outline


class ParseCache:
    """The last outline (module classes and syntax errors) of each open document, by URI."""

    def __init__(self) -> None:
        self._known: dict[str, _Parsed] = {}

    def outline(self, snapshot: Snapshot) -> Outline:
        """Returns the outline of `snapshot`. A text of more than `SMALL` characters is not parsed here: the result is
        the outline that `parse` stored last, with the line numbers moved to those of the new text; before the first
        `parse` of the document, the result is empty."""
        known = self._known.get(snapshot.uri)
        if known is not None and self.has(snapshot):
            return known.outline
        if len(snapshot.text) <= SMALL:
            self.parse(snapshot)
            return self._known[snapshot.uri].outline
        return _NOTHING if known is None else moved(known.outline, known.snapshot, snapshot)

    def has(self, snapshot: Snapshot) -> bool:
        known = self._known.get(snapshot.uri)
        return known is not None and known.snapshot.text == snapshot.text

    def is_known(self, snapshot: Snapshot) -> bool:
        """Return whether `outline` knows the classes of the document: it was parsed before, or it is short."""
        return snapshot.uri in self._known or len(snapshot.text) <= SMALL

    def parse(self, snapshot: Snapshot) -> bool:
        """Parses the document and stores its outline. Returns whether the outline differs from the one that `outline`
        last returned. May run in a thread."""
        known = self._known.get(snapshot.uri)
        expected = _NOTHING if known is None else moved(known.outline, known.snapshot, snapshot)
        parsed = _with_half_typed(outline(snapshot.text), expected.classes)
        self._known[snapshot.uri] = _Parsed(snapshot, parsed)
        return expected != parsed

    def forget(self, uri: str) -> None:
        self._known.pop(uri, None)


def _with_half_typed(parsed: Outline, known: tuple[ModuleClass, ...]) -> Outline:
    """Returns `parsed` and those classes of `known` that are missing only because the user is typing their class
    statement, which has a syntax error meanwhile."""
    names = {one.name for one in parsed.classes}
    kept = [one for one in known if one.name not in names and parsed.fault_of(one) is not None]
    classes = sorted((*parsed.classes, *kept), key=lambda one: one.line)
    return replace(parsed, classes=tuple(classes))
