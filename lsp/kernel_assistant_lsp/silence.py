"""The comment that hides a class from lenses: `# kernel-assistant: ignore` above it or on its line. Pure."""

from __future__ import annotations

import re

from kernel_assistant.source.find import ModuleClass
from kernel_assistant_lsp.text.snapshot import Snapshot

COMMENT = "# kernel-assistant: ignore"
#: Part of every such comment; a text without it needs no search.
MARK = "kernel-assistant"
_MARK = re.compile(r"#\s*kernel-assistant\s*:\s*ignore\s*(?:#.*)?$")


def ignored(snapshot: Snapshot, one: ModuleClass) -> bool:
    """Return whether the comment `# kernel-assistant: ignore` is above the class, in its block of comments, or on the
    first line of the class."""
    if _MARK.search(snapshot.line(one.line - 1)):
        return True
    number = one.line - 2
    while number >= 0 and snapshot.line(number).lstrip().startswith("#"):
        if _MARK.search(snapshot.line(number)):
            return True
        number -= 1
    return False


def with_comment(snapshot: Snapshot, one: ModuleClass) -> str:
    """Return the text with the comment `# kernel-assistant: ignore` inserted above the class."""
    start = snapshot.starts[one.line - 1]
    line = snapshot.line(one.line - 1)
    indent = line[: len(line) - len(line.lstrip(" \t\f"))]
    end = "\r\n" if "\r\n" in snapshot.text[:20_000] else "\n"
    return f"{snapshot.text[:start]}{indent}{COMMENT}{end}{snapshot.text[start:]}"
