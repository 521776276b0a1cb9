"""Makes the diff that shows users how applying or undoing changes their file."""

from __future__ import annotations

import difflib

from kernel_assistant.apply.text import split_lines

_NO_END = "\\ No newline at end of file\n"


def unified_diff(before: str, after: str, name: str) -> str:
    """Returns the unified diff of one file with three lines of context, "" if nothing changes. Line ends become LF."""
    old, new = (split_lines(text) for text in (before, after))
    lines = difflib.unified_diff(old, new, f"a/{name}", f"b/{name}")
    return "".join(_shown(line) for line in lines)


def _shown(line: str) -> str:
    body = line.rstrip("\r\n")
    return body + "\n" if body != line else body + "\n" + _NO_END
