"""The folder of a pipeline's run: what it was asked for, and how far its stages are."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from kernel_assistant.errors import StoreError, UsageError, boundary
from kernel_assistant.records import decode, encode
from kernel_assistant.records.codec import Record
from kernel_assistant_training.pipeline.kinds import KINDS
from kernel_assistant_training.pipeline.recipe import Recipe, held

RECIPE, DONE, PROGRESS, LOG, LOCK = "run.json", "done", "progress", "output.log", "lock"
#: Seconds that a stage of a killed pipeline has to end before a second pipeline gives up.
PATIENCE_S = 60.0


class Progress(Record, frozen=True, kw_only=True):
    """Of a stage that has begun: seconds and starts so far, and bytes of its metrics that the run's have."""

    seconds: float = 0.0
    starts: int = 0
    copied: int = 0


class Done(Record, frozen=True, kw_only=True):
    """Of a stage that is over. `how`: "ended", or "limit" where it was stopped there. `model` is relative to the run's
    folder, "" without one; `result` is the object that the stage ended its output with."""

    seconds: float
    starts: int
    how: str
    model: str = ""
    result: dict[str, Any] = {}


class RunFolder:
    """One pipeline at a time; a context that holds the lock. Raises UsageError, StoreError."""

    def __init__(self, path: Path, recipe: Recipe) -> None:
        self.path, self.recipe = path.absolute(), recipe
        with boundary(StoreError, f"{path} could not be made"):
            self.path.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        """Raises UsageError where another pipeline works here, or the run is one of another recipe."""
        with boundary(StoreError, f"cannot write {self.path / LOCK}"):
            self.lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._take_lock()
            self._hold()
        except BaseException:
            os.close(self.lock)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.lock)

    def folder(self, place: int) -> Path:
        return self.path / f"{place + 1:02}-{self.recipe.stage[place].name}"

    def watched(self, place: int) -> Path:
        """Where the stage's figures, status and control are."""
        return self.folder(place) / KINDS[self.recipe.stage[place].of_kind].watched

    def progress(self, place: int) -> Progress | None:
        """None for a stage that has not begun."""
        file = self.folder(place) / PROGRESS
        return decode(file.read_bytes(), Progress) if file.is_file() else None

    def done(self, place: int) -> Done | None:
        file = self.folder(place) / DONE
        return decode(file.read_bytes(), Done) if file.is_file() else None

    def keep(self, place: int, record: Progress | Done) -> None:
        """Whole or not at all."""
        folder = self.folder(place)
        name = DONE if isinstance(record, Done) else PROGRESS
        write_whole(folder / name, encode(record))

    def set_aside(self, first: int) -> Path | None:
        """Moves what stage number `first` and those behind it have; where to, None if there is nothing."""
        begun = [self.folder(place) for place in range(first, len(self.recipe.stage)) if self.folder(place).exists()]
        if not begun:
            return None
        number = 1
        while (aside := self.path / f"before-{number}").exists():
            number += 1
        with boundary(StoreError, f"cannot write {aside}"):
            aside.mkdir()
            # The last one first: a folder that is left behind by a crash has all that it was made from.
            for folder in reversed(begun):
                folder.rename(aside / folder.name)
        return aside

    def _take_lock(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < until and not self._owner_lives():
                    time.sleep(0.2)
                    continue
                raise UsageError(
                    f"{self.path} is being worked on{self._owner()}", "wait for it, or ask it to stop: Ctrl-C, or kill"
                ) from None
            os.ftruncate(self.lock, 0)
            os.pwrite(self.lock, str(os.getpid()).encode(), 0)
            return

    def _owner(self) -> str:
        said = os.pread(self.lock, 32, 0).decode()
        return f" by process {said}" if said else ""

    def _owner_lives(self) -> bool:
        said = os.pread(self.lock, 32, 0).decode()
        return said.isdigit() and Path("/proc", said).exists()

    def _hold(self) -> None:
        file = self.path / RECIPE
        asked = msgspec.to_builtins(self.recipe)
        document = {**asked, "stage": [{**one, "kind": one.get("kind") or one["name"]} for one in asked["stage"]]}
        if file.is_file():
            before, now = held(decode(file.read_bytes(), Recipe)), held(self.recipe)
            before, now = ({name: value for name, value in each.items() if value != ""} for each in (before, now))
            other = sorted(name for name in {**before, **now} if before.get(name) != now.get(name))
            if other:
                said = ", ".join(f"{name} {_shown(before.get(name))}, not {_shown(now.get(name))}" for name in other)
                raise UsageError(f"{self.path} is a run with {said}", "name another folder: --out")
        write_whole(file, (json.dumps(document, indent=1) + "\n").encode())


def write_whole(file: Path, data: bytes) -> None:
    """Written beside, flushed, renamed. Raises StoreError."""
    with boundary(StoreError, f"cannot write {file}"):
        fresh = file.with_name(f"{file.name}.new")
        with fresh.open("wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        fresh.replace(file)


def _shown(value: object) -> str:
    return "nothing" if value is None else repr(value)
