"""The vetted headers of `skills/include` that a candidate includes: what they are, and a candidate made complete."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import msgspec

from kernel_assistant.records import Candidate

INCLUDE = Path(__file__).resolve().parent.parent / "skills" / "include"

#: Also behind quotation marks: the sources of free-form candidates are strings of a Python file.
_DIRECTIVE = re.compile(r'(?:#|%:)[ \t]*include[ \t]*["<]([^">\n]+)[">]')


@cache
def shipped() -> Mapping[str, str]:
    """Name as it is included (`ka/rows.cuh`, `ka_cuda.cuh`) → text, of every header there is."""
    found = (path for path in sorted(INCLUDE.rglob("*")) if path.suffix in (".h", ".cuh"))
    return {path.relative_to(INCLUDE).as_posix(): path.read_text(encoding="utf-8") for path in found}


def included(texts: Iterable[str], own: Iterable[str] = ()) -> dict[str, str]:
    """Name → text of the shipped headers that `texts` include, transitively, without those named in `own`."""
    known, found = shipped(), dict[str, str]()
    brought = frozenset(own)
    waiting = list(texts)
    while waiting:
        for name in _DIRECTIVE.findall(waiting.pop()):
            if name in known and name not in found and name not in brought:
                found[name] = known[name]
                waiting.append(known[name])
    return dict(sorted(found.items()))


def complete(candidate: Candidate) -> Candidate:
    """The candidate with the headers that it includes among its sources, so that it builds without this tool."""
    added = included(candidate.sources.values(), candidate.sources)
    return msgspec.structs.replace(candidate, sources={**candidate.sources, **added}) if added else candidate


def source_paths(folder: Path) -> dict[str, Path]:
    """Name as a candidate's source → path, of the files in `folder` and of the headers in its `ka/`."""
    files = [*sorted(folder.glob("*")), *sorted((folder / "ka").glob("*"))]
    return {path.relative_to(folder).as_posix(): path for path in files if path.is_file()}
