"""Finds the vetted headers of `skills/include` that a candidate includes, and adds them to the candidate."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import msgspec

from kernel_assistant.records import Candidate

INCLUDE = Path(__file__).resolve().parents[2] / "skills" / "include"

#: Not only at the beginning of a line: the sources of free-form candidates are strings in a Python file.
_DIRECTIVE = re.compile(r'(?:#|%:)[ \t]*include[ \t]*["<]([^">\n]+)[">]')


@cache
def shipped() -> Mapping[str, str]:
    """Returns the text of every vetted header by its name in an `#include` (`ka/rows.cuh`, `ka_cuda.cuh`)."""
    paths = (path for path in sorted(INCLUDE.rglob("*")) if path.suffix in (".h", ".cuh"))
    return {path.relative_to(INCLUDE).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def included(texts: Iterable[str], own: Iterable[str] = ()) -> dict[str, str]:
    """Returns name → text of the vetted headers that `texts` include, transitively, without those named in `own`."""
    known, headers = shipped(), dict[str, str]()
    brought = frozenset(own)
    waiting = list(texts)
    while waiting:
        for name in _DIRECTIVE.findall(waiting.pop()):
            if name in known and name not in headers and name not in brought:
                headers[name] = known[name]
                waiting.append(known[name])
    return dict(sorted(headers.items()))


def complete(candidate: Candidate) -> Candidate:
    """Adds the headers that a candidate includes to its sources, so that it builds without this tool."""
    added = included(candidate.sources.values(), candidate.sources)
    return msgspec.structs.replace(candidate, sources={**candidate.sources, **added}) if added else candidate


def source_paths(folder: Path) -> dict[str, Path]:
    """Returns the paths of the files in `folder` and of the headers in its subfolder `ka`, by the names that they have
    in a candidate."""
    files = [*sorted(folder.glob("*")), *sorted((folder / "ka").glob("*"))]
    return {path.relative_to(folder).as_posix(): path for path in files if path.is_file()}
