"""Classes of open documents, parsed when typing pauses."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.source.find import ModuleClass
from kernel_assistant_lsp.classes import classes_of, moved
from kernel_assistant_lsp.snapshot import Snapshot

#: Characters; a text of this size parses in a few milliseconds, so it is not worth waiting for a pause.
SMALL = 24_000


@dataclass(frozen=True)
class Parsed:
    text: str
    classes: tuple[ModuleClass, ...]


class Parses:
    """The last good parse of each document."""

    def __init__(self) -> None:
        self._known: dict[str, Parsed] = {}

    def classes(self, snapshot: Snapshot) -> tuple[ModuleClass, ...]:
        """Those of `snapshot`, as far as known without a long parse: the last good ones where they have moved to."""
        known = self._known.get(snapshot.uri)
        if known is not None and known.text == snapshot.text:
            return known.classes
        if known is None or len(snapshot.text) <= SMALL:
            self.parse(snapshot)
            known = self._known.get(snapshot.uri)
        return () if known is None else moved(known.classes, known.text, snapshot.text)

    def parse(self, snapshot: Snapshot) -> bool:
        """Parse now; whether the classes differ from what `classes` said. May run in a thread."""
        found = classes_of(snapshot.text, str(snapshot.path))
        if found is None:
            return False
        known = self._known.get(snapshot.uri)
        expected = () if known is None else moved(known.classes, known.text, snapshot.text)
        self._known[snapshot.uri] = Parsed(snapshot.text, found)
        return expected != found

    def forget(self, uri: str) -> None:
        self._known.pop(uri, None)
