"""Small edits at a random place of a source: in its code, or in the lines that say what is launched. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

#: An edit of a source; None where it has no place there.
Edit = Callable[[str, Random], str | None]
Replacement = str | Callable[[re.Match[str]], str]


def in_code(pattern: str, replacement: Replacement) -> Edit:
    """One match in a line of code replaced; `replacement` as in `re.sub`."""
    return _edit(pattern, replacement, _is_code)


def in_head(pattern: str, replacement: Replacement) -> Edit:
    """One match in a comment line that says what is launched."""
    return _edit(pattern, replacement, lambda line: not _is_code(line) and line.lstrip().startswith("//"))


def one_of(*edits: Edit) -> Edit:
    """One of several edits that have a place; each is as likely."""

    def apply(source: str, random: Random) -> str | None:
        for edit in random.sample(edits, len(edits)):
            changed = edit(source, random)
            if changed is not None:
                return changed
        return None

    return apply


def swap(pattern: str, names: Sequence[str]) -> Edit:
    """One occurrence of a name replaced by another one of `names`; `pattern` has `{}` where the name stands."""
    pairs = [(old, new) for old in names for new in names if old != new]
    return one_of(*(in_code(pattern.format(re.escape(old)), pattern_to(old, new)) for old, new in pairs))


def pattern_to(old: str, new: str) -> Callable[[re.Match[str]], str]:
    return lambda found: found[0].replace(old, new, 1)


def _edit(pattern: str, replacement: Replacement, wanted: Callable[[str], bool]) -> Edit:
    compiled = re.compile(pattern)

    def apply(source: str, random: Random) -> str | None:
        lines = source.split("\n")
        places = [
            (number, found) for number, line in enumerate(lines) if wanted(line) for found in compiled.finditer(line)
        ]
        if not places:
            return None
        number, found = random.choice(places)
        new = found.expand(replacement) if isinstance(replacement, str) else replacement(found)
        lines[number] = lines[number][: found.start()] + new + lines[number][found.end() :]
        changed = "\n".join(lines)
        return changed if changed != source else None

    return apply


def _is_code(line: str) -> bool:
    return not line.lstrip().startswith(("//", "#"))
