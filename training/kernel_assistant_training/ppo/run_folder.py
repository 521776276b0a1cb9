"""The folder of a run: what it was asked for, and checkpoints that are whole or not there."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kernel_assistant.errors import StoreError, UsageError, boundary
from kernel_assistant.records.codec import Record
from kernel_assistant_training.ppo.curriculum import Progress
from kernel_assistant_training.saving import flush, last_checkpoint, written

if TYPE_CHECKING:  # stages without a model do not load transformers for a folder
    from kernel_assistant_training.ppo.actor import Actor

#: Of the newest checkpoints; the first stays too.
KEPT = 2
_CHECKPOINT = re.compile(r"checkpoint-(\d{6})")
#: Of a Hugging Face folder, what is not weights.
_AROUND = ("*.json", "*.jinja", "*.txt", "*.model")
_WEIGHTS = re.compile(r".*\.safetensors(\.index\.json)?")
#: What a stage writes beside its model; figures say that fine-tuning is over.
_OF_A_RUN = ("state.json", "run.json", "status.json", "figures.json")


class State(Record, frozen=True, kw_only=True):
    """Behind `iteration`, which is the number of its checkpoint. Random numbers follow from the run's seed and
    the next iteration's number; the optimiser's moments are not kept."""

    iteration: int = 0
    kl_coefficient: float = 0.0
    optimiser_steps: int = 0
    episodes: int = 0
    tokens: int = 0
    seconds: float = 0.0
    curriculum: Progress = Progress()


class RunFolder:
    """One process uses it at a time. Raises StoreError where the disk is full."""

    def __init__(self, path: Path, asked: Mapping[str, Any], keep_every: int = 0, free: Collection[str] = ()) -> None:
        """Made, or gone on with. Of each `keep_every` iterations a checkpoint is kept, beside the first and the newest.
        What `free` names was asked for by earlier versions, and no longer matters. Raises UsageError where it is
        another run's."""
        self.path, self._keep_every = path, keep_every
        with boundary(StoreError, f"{path} could not be made"):
            path.mkdir(parents=True, exist_ok=True)
            for rest in path.glob("checkpoint-*.partial"):
                shutil.rmtree(rest)
            self._hold_to(dict(asked), free)

    def latest(self) -> tuple[Path, State] | None:
        """The newest checkpoint."""
        found = self._checkpoints()
        if not found:
            return None
        return found[-1], msgspec.json.decode((found[-1] / "state.json").read_bytes(), type=State)

    def first(self) -> Path | None:
        """The oldest checkpoint: what the run began with, wherever its base lies now."""
        return next(iter(self._checkpoints()), None)

    def save(self, actor: Actor, around: Path, state: State) -> Path:
        """A checkpoint: weights, what lies `around` those it began with, and the state. What was there stays if this
        fails."""
        folder = self.path / f"checkpoint-{state.iteration:06}"
        partial = folder.with_suffix(".partial")
        with written(folder):
            try:
                partial.mkdir()
                copy_around(around, partial)
                actor.save(partial)
                (partial / "state.json").write_bytes(msgspec.json.encode(state))
                flush(partial)
                partial.rename(folder)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
            for old in self._checkpoints()[1:-KEPT]:
                if not self._keep_every or int(old.name[-6:]) % self._keep_every:
                    shutil.rmtree(old)
        return folder

    def named(self) -> str:
        """Where training can go on, for messages."""
        return last_checkpoint(next(reversed(self._checkpoints()), None))

    def _checkpoints(self) -> list[Path]:
        return sorted(path for path in self.path.glob("checkpoint-*") if _CHECKPOINT.fullmatch(path.name))

    def _hold_to(self, asked: dict[str, Any], free: Collection[str]) -> None:
        file = self.path / "run.json"
        if not file.is_file():
            partial = file.with_suffix(".partial")
            partial.write_text(json.dumps(asked, indent=1) + "\n", encoding="utf-8")
            partial.rename(file)
            return
        before = json.loads(file.read_text(encoding="utf-8"))
        other = [name for name in {**before, **asked} if name not in free and before.get(name) != asked.get(name)]
        if other:
            said = ", ".join(f"{name} {before.get(name)!r}, not {asked.get(name)!r}" for name in sorted(other))
            raise UsageError(f"{self.path} is a run with {said}", "name another folder: --out")


def copy_around(source: Path, target: Path) -> None:
    """Vocabulary, template and configuration of a model folder."""
    for pattern in _AROUND:
        for file in source.glob(pattern):
            if file.name not in _OF_A_RUN and not _WEIGHTS.fullmatch(file.name):
                shutil.copy(file, target)
