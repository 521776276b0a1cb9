"""Scans of programs and which classes they kept inputs of. In the store's file, beside its other tables."""

from __future__ import annotations

import time
from pathlib import Path

from kernel_assistant.errors import UsageError
from kernel_assistant.records.codec import decode, encode
from kernel_assistant.records.scan import Scan
from kernel_assistant.store.database import Database


class ScanStore:
    """Every method raises StoreError when the database cannot be read or written."""

    def __init__(self, state_dir: Path) -> None:
        self._database = Database(state_dir / "store.sqlite")
        self._folder = state_dir / "scans"

    def close(self) -> None:
        self._database.close()

    def begin(self, command: tuple[str, ...], folder: str) -> tuple[str, Path]:
        """A new number and the folder for its files, which is made."""
        with self._database.transaction() as db:
            (last,) = db.execute("SELECT coalesce(max(id), 0) FROM scans").fetchone()
            number = max(last, self._last_folder()) + 1
            db.execute(
                "INSERT INTO scans (id, command, folder, created, document) VALUES (?, ?, ?, ?, '')",
                (number, _key(command), folder, time.time()),
            )
            path = self._folder / str(number)
            path.mkdir(parents=True, mode=0o700)
        return str(number), path

    def forget(self, scan: str) -> None:
        """Drop one that recorded nothing."""
        with self._database.transaction() as db:
            db.execute("DELETE FROM scans WHERE id = ?", (int(scan),))

    def finish(self, scan: Scan) -> None:
        rows = [
            (int(scan.id), row.path, row.qualname, row.share_seconds) for row in scan.classes if row.folder and row.path
        ]
        with self._database.transaction() as db:
            db.execute("UPDATE scans SET document = ? WHERE id = ?", (encode(scan).decode(), int(scan.id)))
            db.executemany("INSERT OR REPLACE INTO recorded (scan, path, class, share) VALUES (?, ?, ?, ?)", rows)

    def scan(self, scan: str) -> Scan:
        """Raises UsageError if there is no such scan; `last` is the newest."""
        found = (
            self.scans(limit=1) if scan == "last" else self._scans("AND id = ?", int(scan) if scan.isdigit() else -1)
        )
        if not found:
            raise UsageError(f"no scan {scan!r}", "kernel-assistant scan -- COMMAND makes one")
        return found[0]

    def scans(self, *, command: tuple[str, ...] = (), folder: str = "", limit: int = 100) -> list[Scan]:
        """Finished ones, newest first; those of one command and working folder if given."""
        if not command:
            return self._scans("ORDER BY id DESC LIMIT ?", limit)
        return self._scans("AND command = ? AND folder = ? ORDER BY id DESC LIMIT ?", _key(command), folder, limit)

    def with_inputs(self, path: Path, class_name: str = "") -> Scan | None:
        """The newest scan that kept inputs of a class of this file (of any of them if it is not named)."""
        with self._database.reading() as db:
            row = db.execute(
                "SELECT max(scan) FROM recorded WHERE path = ? AND (? = '' OR class = ?)",
                (str(path), class_name, class_name),
            ).fetchone()
        return None if row[0] is None else self.scan(str(row[0]))

    def _scans(self, condition: str, *values: object) -> list[Scan]:
        with self._database.reading() as db:
            rows = db.execute(f"SELECT document FROM scans WHERE document != '' {condition}", values).fetchall()
        return [decode(str(row[0]), Scan) for row in rows]

    def _last_folder(self) -> int:
        if not self._folder.is_dir():
            return 0
        return max((int(item.name) for item in self._folder.iterdir() if item.name.isdigit()), default=0)


def _key(command: tuple[str, ...]) -> str:
    return encode(command).decode()
