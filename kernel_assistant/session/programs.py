"""Finds the user's programs that use a class of an installed library, from scans."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kernel_assistant.apply import is_installed
from kernel_assistant.store.scans import newest_scans


def programs_using(path: Path, class_name: str, state_dir: Path, folders: Iterable[Path]) -> list[Path]:
    """Returns the programs in `folders` that used the class `class_name` of the file `path`, those of the newest scans
    first. Raises StoreError."""
    within = tuple(folders)
    programs = [
        Path(scan.main)
        for scan in newest_scans(state_dir)
        if scan.main and any(row.path == str(path) and row.qualname == class_name for row in scan.classes)
    ]
    return [one for one in dict.fromkeys(programs) if _is_in(one, within)]


def _is_in(path: Path, folders: tuple[Path, ...]) -> bool:
    inside = any(path.is_relative_to(folder) for folder in folders)
    return inside and path.suffix == ".py" and path.is_file() and not is_installed(path)
