"""Splits a file into its top-level classes and functions, so that parts can be parsed and cached."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

_BEGINS = re.compile(r"^(?:@|class\b|def\b|async\s+def\b)", re.MULTILINE)


def pieces(text: str) -> Iterator[tuple[int, str]]:
    """Yields (number of lines above, text) of each piece: a class or function with its decorators and the lines after
    it."""
    start, above, decorated = 0, 0, False
    for match in _BEGINS.finditer(text):
        position, decorator = match.start(), match.group() == "@"
        if decorated:
            decorated = decorator
            continue
        decorated = decorator
        if position > start:
            yield above, text[start:position]
            above += text.count("\n", start, position)
            start = position
    yield above, text[start:]


def parse_piece(text: str) -> ast.Module | None:
    """Parses a piece. Returns None if it is not valid Python: it is incomplete, or the text was split inside a
    string."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
