"""The SQLite file: opens and migrates it, and reports each of its failures in one clear line."""

from __future__ import annotations

import fcntl
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernel_assistant.errors import StoreError

#: Each entry brings the schema one version further; entries are never edited once released.
MIGRATIONS = (
    """
    CREATE TABLE jobs (
        id INTEGER PRIMARY KEY, key TEXT NOT NULL, state TEXT NOT NULL, path TEXT NOT NULL, device TEXT NOT NULL,
        created REAL NOT NULL, started REAL NOT NULL, ended REAL NOT NULL,
        task TEXT NOT NULL, options TEXT NOT NULL, result TEXT, error TEXT NOT NULL);
    CREATE INDEX jobs_by_state ON jobs (state);
    CREATE TABLE candidates (hash TEXT PRIMARY KEY, document TEXT NOT NULL);
    CREATE TABLE steps (
        job INTEGER NOT NULL, turn INTEGER NOT NULL, message TEXT NOT NULL, started REAL NOT NULL, ended REAL NOT NULL,
        PRIMARY KEY (job, turn));
    CREATE TABLE evaluations (
        job INTEGER NOT NULL, turn INTEGER NOT NULL, position INTEGER NOT NULL, candidate TEXT NOT NULL,
        outcome TEXT NOT NULL, document TEXT NOT NULL, PRIMARY KEY (job, turn, position));
    CREATE INDEX evaluations_by_candidate ON evaluations (candidate);
    CREATE TABLE episodes (job INTEGER PRIMARY KEY, document TEXT NOT NULL);
    CREATE TABLE edits (
        id INTEGER PRIMARY KEY, path TEXT NOT NULL, job TEXT NOT NULL, document TEXT NOT NULL,
        created REAL NOT NULL, undone REAL NOT NULL);
    CREATE INDEX edits_by_path ON edits (path);
    """,
    """
    CREATE TABLE scans (
        id INTEGER PRIMARY KEY, command TEXT NOT NULL, folder TEXT NOT NULL, created REAL NOT NULL,
        document TEXT NOT NULL);
    CREATE INDEX scans_by_command ON scans (command, folder);
    CREATE TABLE recorded (
        scan INTEGER NOT NULL, path TEXT NOT NULL, class TEXT NOT NULL, share REAL NOT NULL,
        PRIMARY KEY (scan, path, class));
    CREATE INDEX recorded_by_path ON recorded (path, class);
    """,
    """
    CREATE TABLE transcripts (
        job INTEGER NOT NULL, conversation INTEGER NOT NULL, document TEXT NOT NULL, PRIMARY KEY (job, conversation));
    CREATE TABLE messages (
        job INTEGER NOT NULL, conversation INTEGER NOT NULL, position INTEGER NOT NULL, document TEXT NOT NULL,
        PRIMARY KEY (job, conversation, position));
    """,
    "CREATE TABLE discarded (job INTEGER PRIMARY KEY, created REAL NOT NULL);",
    """
    CREATE TABLE programs (
        path TEXT NOT NULL, class TEXT NOT NULL, compiled INTEGER NOT NULL, seen REAL NOT NULL,
        PRIMARY KEY (path, class));
    """,
    "ALTER TABLE jobs ADD COLUMN next_step TEXT NOT NULL DEFAULT '';",
)

_LOCK_WAIT_S = 5.0


class Database:
    """One connection to the database, protected by a lock. It is opened again if another process has moved a damaged
    file aside."""

    def __init__(self, path: Path, *, lock_wait: float = _LOCK_WAIT_S) -> None:
        self.path = path
        self._lock_wait = lock_wait
        self._lock = threading.RLock()
        self._inode = 0
        #: New path of a file that was damaged on opening, None if it was not.
        self.aside: Path | None = None
        with self._guard(), self._exclusive():
            self._connection = self._open_sound()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Begins a transaction and yields the connection. Commits all changes at the end of the `with` block, or none
        if it raises. Raises StoreError."""
        with self._lock, self._guard():
            self._reopen_if_moved()
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._guard():
            self._reopen_if_moved()
            yield self._connection

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _open_sound(self) -> sqlite3.Connection:
        """Opens and migrates the file. If SQLite cannot read it, the file is moved aside, and a new one is created."""
        try:
            return self._open()
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
        self._move_aside()
        return self._open()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=self._lock_wait, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if damage != "ok":
                raise sqlite3.DatabaseError(f"malformed: {damage}")
            self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        self._inode = self.path.stat().st_ino
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise StoreError(
                f"{self.path} is of a newer kernel-assistant (schema {version}, ours {len(MIGRATIONS)})",
                "upgrade kernel-assistant, or set KERNEL_ASSISTANT_STATE_DIR to another folder",
            )
        for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
            connection.executescript(f"BEGIN; {script} PRAGMA user_version = {number}; COMMIT;")

    def _move_aside(self) -> None:
        number = 1
        while (aside := self.path.with_name(f"{self.path.name}.damaged-{number}")).exists():
            number += 1
        self.path.rename(aside)
        self.aside = aside
        for suffix in ("-wal", "-shm"):
            extra = self.path.with_name(self.path.name + suffix)
            if extra.exists():
                extra.rename(aside.with_name(aside.name + suffix))

    def _reopen_if_moved(self) -> None:
        try:
            unchanged = self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            unchanged = False
        if not unchanged:
            self._connection.close()
            with self._exclusive():
                self._connection = self._open_sound()

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Holds, during the `with` block, the file lock under which only one process opens, migrates or moves the
        database."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.path.with_name(self.path.name + ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _explain(self.path, error) from error
        except OSError as error:
            raise StoreError(
                f"cannot use {self.path}: {error.strerror}", f"make {self.path.parent} writable"
            ) from error


def last_number(folder: Path) -> int:
    """Returns the highest number that is the name of an entry in `folder`; 0 if no name is a number."""
    entries = folder.iterdir() if folder.is_dir() else ()
    return max((int(item.name) for item in entries if item.name.isdigit()), default=0)


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    text = str(error)
    return "malformed" in text or "not a database" in text


def _explain(path: Path, error: sqlite3.Error) -> StoreError:
    text = str(error)
    if "full" in text or "disk I/O" in text:
        return StoreError(f"cannot write {path}: {text}", f"free disk space below {path.parent}")
    if "locked" in text or "busy" in text:
        return StoreError(f"{path} is locked by another program", "end the program that holds it, then try again")
    if "readonly" in text or "unable to open" in text:
        return StoreError(f"cannot use {path}: {text}", f"make {path.parent} writable")
    if isinstance(error, sqlite3.DatabaseError) and _is_damage(error):
        return StoreError(f"{path} is damaged: {text}", "try again: it will be moved aside and a new one begun")
    return StoreError(f"{path}: {text}", "report this with the log (kernel-assistant doctor says where)")
