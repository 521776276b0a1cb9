"""Finds the parts of a file on which a class can depend. Only words are compared, so that the other parts need not be
parsed."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from kernel_assistant.source.pieces import pieces

_BEGIN = re.compile(r"^(?:class|def|async\s+def)\s+(\w+)", re.MULTILINE)
#: The first line of a top-level statement: not blank, a comment, a closing bracket or a decorator.
_STATEMENT = re.compile(r"^[^\s#)\]}@]", re.MULTILINE)
_WORD = re.compile(r"\w+")


def reachable(text: str, class_name: str) -> str:
    """Returns `text` without top-level classes and functions on which the class cannot depend, directly or indirectly.

    In doubt a part is kept: a definition whose name contains `__` (Python changes such names inside classes), one that
    is followed by other code, and the whole text if it may have been split inside a string.
    """
    cut = [piece for _, piece in pieces(text)]
    if any(piece.count(quotes) % 2 for piece in cut for quotes in ('"""', "'''")):
        return text
    names = [_only_name(piece) for piece in cut]
    kept = {position for position, name in enumerate(names) if not name or name == class_name or "__" in name}
    positions: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        positions.setdefault(name, []).append(position)
    new = list(kept)
    while new:
        reached = {position for word in _words(cut[new.pop()]) for position in positions.get(word, ())} - kept
        kept |= reached
        new.extend(reached)
    return "".join(cut[position] for position in sorted(kept))


def _only_name(piece: str) -> str:
    """Returns the name of the class or function that the piece defines; "" if it defines none or has further
    statements."""
    begin = _BEGIN.search(piece)
    if begin is None or _STATEMENT.search(piece, begin.end()) is not None:
        return ""
    return unicodedata.normalize("NFKC", begin[1])


def _words(piece: str) -> Iterator[str]:
    """Yields the words of a piece, normalized as Python normalizes names."""
    return (match[0] for match in _WORD.finditer(unicodedata.normalize("NFKC", piece)))
