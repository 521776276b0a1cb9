"""Finds, from scans, the user's programs that use a class of an installed library."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kernel_assistant.apply import is_installed
from kernel_assistant.config import Settings
from kernel_assistant.records import KernelTask
from kernel_assistant.records.scan import Scan
from kernel_assistant.session.scanning.recorded import class_of_task
from kernel_assistant.store.scans import newest_scans


def programs_using(path: Path, class_name: str, state_dir: Path, folders: Iterable[Path]) -> list[Path]:
    """Returns the programs below `folders` that used the class `class_name` of the file `path`; programs of newer scans
    come first. Raises StoreError if the scans cannot be read."""
    within = tuple(folders)
    programs = [
        Path(scan.main)
        for scan in newest_scans(state_dir)
        if scan.main and any(row.path == str(path) and row.qualname == class_name for row in scan.classes)
    ]
    return [one for one in dict.fromkeys(programs) if _is_in(one, within)]


def scan_of(task: KernelTask, settings: Settings) -> Scan | None:
    """Returns the scan that recorded the inputs of a task, else the newest scan whose program used its class, or
    None."""
    recorded = class_of_task(task, settings.state_dir)
    if recorded is not None:
        return recorded.scan
    wanted = (task.path, task.class_name)
    scans = newest_scans(settings.state_dir)
    return next((one for one in scans if any((row.path, row.qualname) == wanted for row in one.classes)), None)


def _is_in(path: Path, folders: tuple[Path, ...]) -> bool:
    inside = any(path.is_relative_to(folder) for folder in folders)
    return inside and path.suffix == ".py" and path.is_file() and not is_installed(path)
