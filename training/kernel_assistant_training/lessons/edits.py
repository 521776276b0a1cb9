"""Makes small edits at a random position of a kernel's source: in its code, or in the comment lines that describe its
launches. The functions have no side effects."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

#: An edit of a source; returns None if it does not apply.
Edit = Callable[[str, Random], str | None]
Replacement = str | Callable[[re.Match[str]], str]


def in_code(pattern: str, replacement: Replacement) -> Edit:
    """Returns an edit that replaces one random match of `pattern` in the lines of code; `replacement` is as in
    `re.sub`. The edit returns None without a match."""
    return _edit(pattern, replacement, _is_code)


def in_head(pattern: str, replacement: Replacement) -> Edit:
    """Returns an edit that replaces one random match of `pattern` in the comment lines that state the plan (launches
    and buffers). It leaves the lines `// parts:` and `// schedule:` alone, because the plan does not depend on them.
    The edit returns None without a match."""
    return _edit(pattern, replacement, lambda line: re.match(r"\s*//(?! schedule:| parts:)", line) is not None)


def one_of(*edits: Edit) -> Edit:
    """Returns an edit that tries `edits` in random order and applies the first that can be applied to the source; None
    if none can."""

    def apply(source: str, random: Random) -> str | None:
        for edit in random.sample(edits, len(edits)):
            changed = edit(source, random)
            if changed is not None:
                return changed
        return None

    return apply


def swap(pattern: str, names: Sequence[str]) -> Edit:
    """Returns an edit that replaces one random occurrence of a name in `names` by another of these names. `pattern` is
    a regular expression for an occurrence, with `{}` in place of the name."""
    pairs = [(old, new) for old in names for new in names if old != new]
    return one_of(*(in_code(pattern.format(re.escape(old)), pattern_to(old, new)) for old, new in pairs))


def pattern_to(old: str, new: str) -> Callable[[re.Match[str]], str]:
    return lambda match: match[0].replace(old, new, 1)


def _edit(pattern: str, replacement: Replacement, wanted: Callable[[str], bool]) -> Edit:
    compiled = re.compile(pattern)

    def apply(source: str, random: Random) -> str | None:
        lines = source.split("\n")
        matches = [
            (number, match) for number, line in enumerate(lines) if wanted(line) for match in compiled.finditer(line)
        ]
        if not matches:
            return None
        number, match = random.choice(matches)
        new = match.expand(replacement) if isinstance(replacement, str) else replacement(match)
        lines[number] = lines[number][: match.start()] + new + lines[number][match.end() :]
        changed = "\n".join(lines)
        return changed if changed != source else None

    return apply


def _is_code(line: str) -> bool:
    return not line.lstrip().startswith(("//", "#"))
