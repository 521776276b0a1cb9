"""The newest scan of the project: ranks of its classes, and of classes of installed libraries that it uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kernel_assistant.records.scan import Scan
from kernel_assistant.store.scans import newest_scans
from kernel_assistant_tui.project.module import Rank


@dataclass(frozen=True)
class Scanned:
    """`ranks` is by file and class. `installed` has files of libraries, with the classes whose inputs were kept."""

    ranks: Mapping[tuple[str, str], Rank] = field(default_factory=dict)
    installed: Mapping[Path, frozenset[str]] = field(default_factory=dict)


def newest_scanned(state_dir: Path, root: Path) -> Scanned:
    """Return the newest scan that ran a program in `root` or saw a class of it. Raises StoreError."""
    by_scan = (_of(scan, root) for scan in newest_scans(state_dir))
    return next((scanned for scanned in by_scan if scanned.ranks), Scanned())


def _of(scan: Scan, root: Path) -> Scanned:
    base = root if root.is_dir() else root.parent
    ours = Path(scan.folder).is_relative_to(base)
    ranks: dict[tuple[str, str], Rank] = {}
    installed: dict[Path, set[str]] = {}
    for position, row in enumerate(scan.classes, start=1):
        path = Path(row.path)
        of_library = ours and row.installed and bool(row.folder)
        if row.path and (of_library or (not row.installed and path.is_relative_to(root))):
            ranks[(row.path, row.qualname)] = Rank(position, row.share_seconds / scan.counted_seconds)
        if row.path and of_library:
            installed.setdefault(path, set()).add(row.qualname)
    return Scanned(ranks, {path: frozenset(names) for path, names in installed.items()})
