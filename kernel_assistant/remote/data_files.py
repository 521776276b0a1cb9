"""Reads the files that `ship` names by patterns below the project's root. Secrets and files outside the project are
never read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kernel_assistant.errors import UsageError

#: Names of files and folders that hold secrets, or whole histories. No setting ships them.
_SECRET = re.compile(
    r"\.env(\..*)?|.*\.env|\.git|\.hg|\.svn|\.ssh|\.aws|\.azure|\.gcloud|\.kube|\.docker|\.gnupg|\.netrc|_netrc|\.npmrc"
    r"|\.pypirc|\.pgpass|\.htpasswd|\.vault.*|id_(rsa|dsa|ecdsa|ed25519).*|.*\.(pem|key|p12|pfx|kdbx|jks|keystore|gpg|asc)"
    r"|.*credential.*|.*secret.*|.*password.*|.*token\.(txt|json)",
    re.IGNORECASE,
)
_SKIPPED = ("__pycache__", ".venv", "venv", "node_modules")


def looks_secret(relative: Path) -> bool:
    """Whether the name of the file, or of a folder above it, looks like a secret."""
    return any(_SECRET.fullmatch(part) for part in relative.parts)


def data_files(project: Path, patterns: tuple[str, ...]) -> tuple[dict[Path, bytes], tuple[str, ...]]:
    """Returns the contents of the files that `patterns` name (globs, or folders with everything inside), and the
    names of the files that were left out.

    Raises UsageError for a pattern that leads out of `project` or names nothing.
    """
    contents: dict[Path, bytes] = {}
    left_out: list[str] = []
    for pattern in patterns:
        if not pattern or Path(pattern).is_absolute() or ".." in Path(pattern).parts:
            raise UsageError(f"ship: {pattern!r} leads out of the project", f"name files below {project}")
        matches = sorted(_matches(project, pattern))
        if not matches:
            raise UsageError(f"ship: {pattern!r} names no file in {project}", "mend the pattern or remove it")
        for path in matches:
            relative = path.relative_to(project)
            if looks_secret(relative) or not _inside(path, project):
                left_out.append(relative.as_posix())
            else:
                contents[path] = _read(path)
    return contents, tuple(dict.fromkeys(left_out))


def _matches(project: Path, pattern: str) -> Iterator[Path]:
    for path in project.glob(pattern):
        for file in path.rglob("*") if path.is_dir() else (path,):
            if file.is_file() and not any(part in _SKIPPED for part in file.relative_to(project).parts):
                yield file


def _inside(path: Path, project: Path) -> bool:
    """Whether the target of `path` is in the project and does not look secret. For a link, the caller checks the
    link's own name."""
    real = path.resolve()
    return real.is_relative_to(project.resolve()) and not looks_secret(real.relative_to(project.resolve()))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"ship: {path} cannot be read: {error.strerror}", "make it readable or leave it out"
        ) from error
