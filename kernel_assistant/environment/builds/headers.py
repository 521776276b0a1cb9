"""Finds the vetted headers (our own headers, which candidates may include) of `skills/include` that a candidate
includes, and adds them to the candidate."""

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
    """Returns name → text of every vetted header. The name is that of an `#include` (`ka/rows.cuh`, `ka_cuda.cuh`)."""
    paths = (path for path in sorted(INCLUDE.rglob("*")) if path.suffix in (".h", ".cuh"))
    return {path.relative_to(INCLUDE).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def included(texts: Iterable[str], own: Iterable[str] = ()) -> dict[str, str]:
    """Returns name → text of the vetted headers that `texts` include, also indirectly, without those named in `own`."""
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
    """Returns the candidate with the vetted headers that it includes added to its sources, so that it builds without
    this tool."""
    added = included(candidate.sources.values(), candidate.sources)
    return msgspec.structs.replace(candidate, sources={**candidate.sources, **added}) if added else candidate


def source_paths(folder: Path) -> dict[str, Path]:
    """Returns name → path of the files in `folder` and in its subfolder `ka`. The names are relative to `folder`, as
    those of a candidate's sources are."""
    files = [*sorted(folder.glob("*")), *sorted((folder / "ka").glob("*"))]
    return {path.relative_to(folder).as_posix(): path for path in files if path.is_file()}
