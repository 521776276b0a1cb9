"""Stores scans of programs, and the classes of which each scan kept inputs. The tables are in the store's database
file."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from kernel_assistant.errors import UsageError
from kernel_assistant.records import ProgramMode
from kernel_assistant.records.codec import decode, encode
from kernel_assistant.records.scan import Scan
from kernel_assistant.store.database import Database, last_number

#: Meaning of the values 0, 1 and 2 of the column `compiled`.
_WAYS = (ProgramMode.eager, ProgramMode.compiled, ProgramMode.scripted)


#: Scans that are searched for a program or a class.
NEWEST = 20


def newest_scans(state_dir: Path) -> list[Scan]:
    """Returns the newest `NEWEST` finished scans, newest first. Raises StoreError."""
    with closing(ScanStore(state_dir)) as store:
        return store.scans(limit=NEWEST)


class ScanStore:
    """The scans in the database below `state_dir`. Every method raises StoreError when the database cannot be read or
    written."""

    def __init__(self, state_dir: Path) -> None:
        self._database = Database(state_dir / "store.sqlite")
        self._folder = state_dir / "scans"

    def close(self) -> None:
        self._database.close()

    def begin(self, command: tuple[str, ...], folder: str) -> tuple[str, Path]:
        """Reserves a new scan number and creates the folder for its files. Returns both, the number as text."""
        with self._database.transaction() as db:
            (last,) = db.execute("SELECT coalesce(max(id), 0) FROM scans").fetchone()
            number = max(last, last_number(self._folder)) + 1
            db.execute(
                "INSERT INTO scans (id, command, folder, created, document) VALUES (?, ?, ?, ?, '')",
                (number, _key(command), folder, time.time()),
            )
            path = self._folder / str(number)
            path.mkdir(parents=True, mode=0o700)
        return str(number), path

    def forget(self, scan: str) -> None:
        """Deletes a scan from the database, for example one that recorded nothing."""
        with self._database.transaction() as db:
            db.execute("DELETE FROM scans WHERE id = ?", (int(scan),))

    def finish(self, scan: Scan) -> None:
        rows = [
            (int(scan.id), row.path, row.qualname, row.share_seconds) for row in scan.classes if row.folder and row.path
        ]
        with self._database.transaction() as db:
            db.execute("UPDATE scans SET document = ? WHERE id = ?", (encode(scan).decode(), int(scan.id)))
            db.executemany("INSERT OR REPLACE INTO recorded (scan, path, class, share) VALUES (?, ?, ?, ?)", rows)

    def note_program(self, eager: Iterable[str], compiled: Iterable[str], scripted: Iterable[str] = ()) -> None:
        """Stores how the program that was scanned last runs its classes (`FILE:CLASS`). A class in several of the lists
        counts as eager if it is in `eager`, else as compiled."""
        modes = {**dict.fromkeys(scripted, 2), **dict.fromkeys(compiled, 1), **dict.fromkeys(eager, 0)}
        now = time.time()
        rows = [(*name.rpartition(":")[::2], inside, now) for name, inside in modes.items()]
        with self._database.transaction() as db:
            db.executemany("INSERT OR REPLACE INTO programs (path, class, compiled, seen) VALUES (?, ?, ?, ?)", rows)

    def program_of(self, path: str, class_name: str) -> ProgramMode:
        """Returns how a program runs the class `class_name` of the file `path`: eagerly, inside torch.compile or as
        TorchScript. That is taken from the last scan of a program that used the class; `unknown` without such a
        scan."""
        with self._database.reading() as db:
            row = db.execute(
                "SELECT compiled FROM programs WHERE path = ? AND class = ?", (path, class_name)
            ).fetchone()
        return ProgramMode.unknown if row is None else _WAYS[row[0]]

    def scan(self, scan: str) -> Scan:
        """Returns a scan by its number; `last` is the newest. Raises UsageError if there is none."""
        scans = (
            self.scans(limit=1) if scan == "last" else self._scans("AND id = ?", int(scan) if scan.isdigit() else -1)
        )
        if not scans:
            raise UsageError(f"no scan {scan!r}", "kernel-assistant scan -- COMMAND makes one")
        return scans[0]

    def scans(self, *, command: tuple[str, ...] = (), folder: str = "", limit: int = 100) -> list[Scan]:
        """Returns finished scans, newest first, at most `limit`; only those of one `command` in the working folder
        `folder`, if `command` is given."""
        if not command:
            return self._scans("ORDER BY id DESC LIMIT ?", limit)
        return self._scans("AND command = ? AND folder = ? ORDER BY id DESC LIMIT ?", _key(command), folder, limit)

    def with_inputs(self, path: Path, class_name: str = "") -> Scan | None:
        """Returns the newest scan that kept inputs of this class of the file; without a class name, of any class of the
        file. None if there is no such scan."""
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


def _key(command: tuple[str, ...]) -> str:
    return encode(command).decode()
