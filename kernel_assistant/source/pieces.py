"""A file cut at its top-level classes and functions: less to parse, or to keep, than all of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

_BEGINS = re.compile(r"^(?:@|class\b|def\b|async\s+def\b)", re.MULTILINE)


def pieces(text: str) -> Iterator[tuple[int, str]]:
    """(lines above, text) of each piece: a class or function with its decorators and what follows it."""
    start, above, decorated = 0, 0, False
    for match in _BEGINS.finditer(text):
        place, decorator = match.start(), match.group() == "@"
        if decorated:
            decorated = decorator
            continue
        decorated = decorator
        if place > start:
            yield above, text[start:place]
            above += text.count("\n", start, place)
            start = place
    yield above, text[start:]


def parse_piece(text: str) -> ast.Module | None:
    """None where it is not valid Python: half-typed, or cut in the middle of a string."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
