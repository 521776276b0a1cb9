"""The folder of a pipeline's run: its recipe, and the progress of its stages."""

from __future__ import annotations

import fcntl
import json
import os
import time
from itertools import count
from pathlib import Path
from typing import Self

import msgspec
import psutil

from kernel_assistant.errors import StoreError, UsageError, boundary
from kernel_assistant.records import decode, encode
from kernel_assistant.session import training_stages as stages
from kernel_assistant.session.training_run import replace_file
from kernel_assistant.session.training_stages import StageDone, StageProgress
from kernel_assistant_training.pipeline.kinds import KINDS
from kernel_assistant_training.pipeline.recipe import Recipe

LOCK = "lock"
#: Seconds that a second pipeline waits for the stage of a killed pipeline to end.
PATIENCE_S = 60.0


class PipelineFolder:
    """The folder of a run. As a context manager it holds a file lock, so that one pipeline at a time uses the folder.
    Stages are numbered from 0."""

    def __init__(self, path: Path, recipe: Recipe) -> None:
        self.path, self.recipe = path.absolute(), recipe

    def __enter__(self) -> Self:
        """Takes the lock and stores the recipe. Raises UsageError if another pipeline uses the folder, or if the folder
        was made from another recipe, and StoreError if a file cannot be written."""
        with boundary(StoreError, f"{self.path / LOCK} could not be made"):
            self.path.mkdir(parents=True, exist_ok=True)
            self.lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._take_lock()
            self._keep_recipe()
        except BaseException:
            os.close(self.lock)
            raise
        return self

    def __exit__(self, *ended: object) -> None:
        os.close(self.lock)

    def folder(self, index: int) -> Path:
        return stages.stage_folder(self.path, index, self.recipe.stage[index].name)

    def watched(self, index: int) -> Path:
        """Returns the folder with the stage's metrics, status and control file."""
        return self.folder(index) / KINDS[self.recipe.stage[index].kind].watched

    def progress(self, index: int) -> StageProgress | None:
        """Returns the progress of a stage; None for a stage that has not begun."""
        return stages.read_record(self.folder(index) / stages.PROGRESS, StageProgress)

    def done(self, index: int) -> StageDone | None:
        """Returns the result of a stage; None for a stage that is not finished."""
        return stages.read_record(self.folder(index) / stages.DONE, StageDone)

    def keep(self, index: int, record: StageProgress | StageDone) -> None:
        """Writes the progress or the result of stage number `index`, atomically. Raises StoreError if the file cannot
        be written."""
        name = stages.DONE if isinstance(record, StageDone) else stages.PROGRESS
        replace_file(self.folder(index) / name, encode(record), durable=True)

    def output(self, index: int) -> list[str]:
        """Returns the lines that a stage's processes printed. Before the lines of each start there is a line with its
        command, as JSON."""
        file = self.folder(index) / stages.LOG
        return file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []

    def set_aside(self, first: int) -> Path | None:
        """Moves the folders of stage number `first` and of all later stages into a new folder. Returns the new folder,
        or None if there is nothing to move. Raises UsageError if a stage before `first` is not done, and StoreError if
        the folders cannot be moved."""
        names = [one.name for one in self.recipe.stage]
        missing = [names[index] for index in range(first) if self.done(index) is None]
        if missing:
            cause = f"--from {names[first]}: {', '.join(missing)} before it is not done"
            raise UsageError(cause, "leave --from out: it goes on")
        begun = [self.folder(index) for index in range(first, len(names)) if self.folder(index).exists()]
        if not begun:
            return None
        aside = next(path for number in count(1) if not (path := self.path / f"before-{number}").exists())
        with boundary(StoreError, f"cannot write {aside}"):
            aside.mkdir()
            # The last stage moves first: after a crash, every folder that is left still has all its inputs.
            for folder in reversed(begun):
                folder.rename(aside / folder.name)
        return aside

    def _take_lock(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                owner = os.pread(self.lock, 32, 0).decode()
                if time.monotonic() > until or (owner.isdigit() and psutil.pid_exists(int(owner))):
                    cause = f"{self.path} is being worked on" + (f" by process {owner}" if owner else "")
                    raise UsageError(cause, "wait for it, or ask it to stop: Ctrl-C, or kill") from None
                time.sleep(0.2)
        os.ftruncate(self.lock, 0)
        os.pwrite(self.lock, str(os.getpid()).encode(), 0)

    def _keep_recipe(self) -> None:
        file, now = self.path / stages.RECIPE, self.recipe.settings()
        before = decode(file.read_bytes(), Recipe).settings() if file.is_file() else now
        pairs = {name: [one.get(name, "nothing") for one in (before, now)] for name in sorted(before | now)}
        other = [f"{name} {was}, not {asked}" for name, (was, asked) in pairs.items() if was != asked]
        if other:
            raise UsageError(f"{self.path} is a run with {', '.join(other)}", "name another folder: --out")
        replace_file(file, (json.dumps(msgspec.to_builtins(self.recipe), indent=1) + "\n").encode(), durable=True)
