"""The folder of a PPO run: its settings and its checkpoints. A checkpoint is complete or absent."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kernel_assistant.records.codec import Record
from kernel_assistant_training.ppo.curriculum import CurriculumProgress
from kernel_assistant_training.run_settings import claim_run
from kernel_assistant_training.saving import flush, last_checkpoint, written

if TYPE_CHECKING:  # stages without a model do not load transformers for a folder
    from kernel_assistant_training.ppo.model.actor import Actor

#: Number of newest checkpoints that are kept, besides the first.
KEPT = 2
_CHECKPOINT = re.compile(r"checkpoint-(\d{6})")
#: Files of a Hugging Face folder besides the weights.
_AROUND = ("*.json", "*.jinja", "*.txt", "*.model")
_WEIGHTS = re.compile(r".*\.safetensors(\.index\.json)?")
#: Files that a stage writes beside its model; figures.json marks a finished fine-tuning.
_OF_A_RUN = ("state.json", "run.json", "status.json", "figures.json")


class PpoState(Record, frozen=True, kw_only=True):
    """The state after iteration number `iteration`, which is also the number of its checkpoint. The random numbers of
    the next iteration follow from the run's seed and the iteration's number; the optimiser's moments are not saved."""

    iteration: int = 0
    kl_coefficient: float = 0.0
    optimiser_steps: int = 0
    episodes: int = 0
    tokens: int = 0
    seconds: float = 0.0
    curriculum: CurriculumProgress = CurriculumProgress()


class PpoRunFolder:
    """The folder of a PPO or critic run. Used by one process at a time. Raises StoreError if the disk is full."""

    def __init__(self, path: Path, asked: Mapping[str, Any], keep_every: int = 0) -> None:
        """Creates the folder or continues its run; `asked` are the run's settings. The first and the two newest
        checkpoints are kept, and between them one checkpoint for every `keep_every` iterations. Raises UsageError if
        the folder belongs to a run with other settings."""
        self.path, self._keep_every = path, keep_every
        claim_run(path, asked)

    def latest(self) -> tuple[Path, PpoState] | None:
        """Returns the newest checkpoint and its state; None if there is no checkpoint."""
        checkpoints = self._checkpoints()
        if not checkpoints:
            return None
        return checkpoints[-1], msgspec.json.decode((checkpoints[-1] / "state.json").read_bytes(), type=PpoState)

    def first(self) -> Path | None:
        """Returns the oldest checkpoint, or None if there is no checkpoint. It has the model that the run began with,
        even if the folder of the run's base has moved."""
        return next(iter(self._checkpoints()), None)

    def save(self, actor: Actor, around: Path, state: PpoState) -> Path:
        """Writes a checkpoint: weights, the other files of the model folder `around`, and the state; removes older
        checkpoints that are not kept. Returns its folder. A failure leaves earlier checkpoints intact."""
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
        """Returns a text that names the newest checkpoint, for error messages that say where training can continue."""
        return last_checkpoint(next(reversed(self._checkpoints()), None))

    def _checkpoints(self) -> list[Path]:
        return sorted(path for path in self.path.glob("checkpoint-*") if _CHECKPOINT.fullmatch(path.name))


def copy_around(source: Path, target: Path) -> None:
    """Copies vocabulary, template and configuration of the model folder `source` to `target`."""
    for pattern in _AROUND:
        for file in source.glob(pattern):
            if file.name not in _OF_A_RUN and not _WEIGHTS.fullmatch(file.name):
                shutil.copy(file, target)
