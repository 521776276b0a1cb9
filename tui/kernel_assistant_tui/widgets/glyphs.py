"""Makes text safe for the terminal: removes control characters, and replaces non-ASCII characters if the locale is
not UTF-8."""

from __future__ import annotations

from functools import lru_cache

from kernel_assistant_tui.themes import draws_boxes

#: ASCII replacements for characters of our own texts; all others become question marks.
_PLAIN = str.maketrans({"×": "x", "µ": "u", "–": "-", "…": "...", "‖": "|", "₂": "2", "·": "-", "→": "->"})
_CONTROL = {code: "\N{REPLACEMENT CHARACTER}" for code in (*range(32), *range(127, 160)) if code != 9}


@lru_cache(maxsize=1)
def utf8() -> bool:
    return draws_boxes()


def clean(text: str) -> str:
    """Returns `text` as one line without control characters: the output of kernels and models must not control the
    terminal."""
    if not text.isprintable():
        text = text.translate(_CONTROL).expandtabs(4)
    return text if utf8() or text.isascii() else ascii_of(text)


def ascii_of(text: str) -> str:
    return text.translate(_PLAIN).encode("ascii", "replace").decode("ascii")


def glyph(beautiful: str, plain: str) -> str:
    return beautiful if utf8() else plain
