"""The judge's version: evaluations by different judges do not compare."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import kernel_assistant

#: Parts of the core that evaluations depend on.
JUDGING = ("environment", "records", "sandbox", "skills", "source", "targets", "worker")
_CORE = Path(kernel_assistant.__path__[0])


@cache
def judge_version() -> str:
    """A digest of the files that take part in evaluations; with an editable checkout it changes with each edit."""
    return digest_of(path for part in JUDGING for path in (_CORE / part).rglob("*") if "__pycache__" not in path.parts)


def digest_of(paths: Iterable[Path]) -> str:
    """A digest of names and contents of files; folders are left out."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        if path.is_file():
            content = path.read_bytes()
            digest.update(f"{path.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]
