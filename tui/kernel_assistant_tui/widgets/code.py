"""Draws sources and diffs as coloured lines. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from textual.content import Content
from textual.highlight import highlight

from kernel_assistant_tui.widgets.glyphs import clean

_LANGUAGES = {".cu": "cuda", ".cuh": "cuda", ".cpp": "cpp", ".h": "cpp", ".py": "python"}
_DIFF = {"+": "$text-success on $success-muted", "-": "$text-error on $error-muted", "@": "$text-accent"}
_HEADS = ("+++", "---")


def source_lines(sources: Mapping[str, str]) -> list[Content]:
    """Return the lines of all files, sources before headers. Each file begins with its name, and its lines are
    numbered."""
    lines: list[Content] = []
    for name, text in sorted(sources.items(), key=lambda item: (item[0].endswith((".h", ".cuh")), item[0])):
        lines += [Content("")] if lines else []
        lines.append(Content.styled(clean(name), "bold $text-primary"))
        code = [clean(line) for line in text.splitlines()]
        suffix = name[name.rfind(".") :] if "." in name else ""
        coloured = highlight("\n".join(code), language=_LANGUAGES.get(suffix, "text"))
        size = len(str(len(code)))
        lines += [
            Content.styled(f"{number:>{size}} ", "$text 40%") + line
            for number, line in enumerate(coloured.split("\n", allow_blank=True), 1)
        ]
    return lines


def diff_lines(diff: str) -> list[Content]:
    """Return the coloured lines of a unified diff."""
    return [Content.styled(clean(line), _style(line)) for line in diff.splitlines()]


def _style(line: str) -> str:
    return "bold $text" if line.startswith(_HEADS) else _DIFF.get(line[:1], "$text")


def sources_diff(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return the unified diff from `before` to `after`, file by file. Both map file names to texts."""
    parts: list[str] = []
    for name in sorted({*before, *after}):
        old, new = (one.get(name, "").splitlines() for one in (before, after))
        parts += difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", lineterm="")
    return "\n".join(parts)
