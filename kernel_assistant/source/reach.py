"""The part of a file that one of its classes can depend on, by words: what is compared need not parse the rest."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from kernel_assistant.source.pieces import pieces

_BEGIN = re.compile(r"^(?:class|def|async\s+def)\s+(\w+)", re.MULTILINE)
#: A line of a statement of its own: neither blank, nor a comment, nor the end of a bracket.
_STATEMENT = re.compile(r"^[^\s#)\]}@]", re.MULTILINE)
_WORD = re.compile(r"\w+")


def reachable(text: str, class_name: str) -> str:
    """`text` without top-level classes and functions that neither the class nor what it names can mean.

    What is not sure stays: names that Python changes inside classes (`__x`), what follows a definition, and all of it
    where a string may have been cut.
    """
    cut = [piece for _, piece in pieces(text)]
    if any(piece.count(quotes) % 2 for piece in cut for quotes in ('"""', "'''")):
        return text
    names = [_only_name(piece) for piece in cut]
    kept = {place for place, name in enumerate(names) if not name or name == class_name or "__" in name}
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(name, []).append(place)
    new = list(kept)
    while new:
        found = {place for word in _words(cut[new.pop()]) for place in places.get(word, ())} - kept
        kept |= found
        new.extend(found)
    return "".join(cut[place] for place in sorted(kept))


def _only_name(piece: str) -> str:
    """What the piece defines, "" where that is not one thing alone."""
    begin = _BEGIN.search(piece)
    if begin is None or _STATEMENT.search(piece, begin.end()) is not None:
        return ""
    return unicodedata.normalize("NFKC", begin[1])


def _words(piece: str) -> Iterator[str]:
    """As Python reads names."""
    return (match[0] for match in _WORD.finditer(unicodedata.normalize("NFKC", piece)))
