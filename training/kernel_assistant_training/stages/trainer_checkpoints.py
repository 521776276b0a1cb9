"""Finds the complete checkpoints that transformers' Trainer wrote, and after how many seconds of training they were
written."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from kernel_assistant.errors import StoreError
from kernel_assistant_training.saving import is_full, last_checkpoint, let_go, naming, why

_NAME = re.compile(r"checkpoint-(\d+)")
#: The file that is written last in a checkpoint, and before an older checkpoint is removed.
_STATE = "trainer_state.json"
#: The name of an entry in its log.
SECONDS = "trained_seconds"


class TrainerCheckpoints:
    """The checkpoints in a run's folder. Creating this object removes incomplete checkpoints."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._drop_halves()

    def latest(self) -> Path | None:
        whole = [path for path in self._all() if _state(path)]
        return max(whole, key=lambda path: int(path.name.partition("-")[2]), default=None)

    def seconds(self) -> float:
        """Returns the seconds of training up to the latest checkpoint; 0 without a checkpoint."""
        latest = self.latest()
        history = _state(latest).get("log_history", []) if latest else []
        return float(next((entry[SECONDS] for entry in reversed(history) if SECONDS in entry), 0.0))

    def drop(self) -> None:
        for path in self._all():
            shutil.rmtree(path)

    def named(self) -> str:
        """Returns a text for error messages that names the checkpoint from which to resume."""
        return last_checkpoint(self.latest())

    @contextmanager
    def naming(self) -> Iterator[None]:
        """A context manager that adds the name of the last checkpoint to the InternalErrors that its block raises, and
        turns the error of a full disk into StoreError."""
        with naming(self.named):
            try:
                yield
            except (OSError, RuntimeError, SafetensorError) as error:
                if not is_full(error):
                    raise
                let_go(error)
                self._drop_halves()
                cause = f"a checkpoint could not be written: {why(error)}"
                raise StoreError(cause, "make room, and start it again") from error

    def _drop_halves(self) -> None:
        for path in self._all():
            if not _state(path):
                shutil.rmtree(path)

    def _all(self) -> list[Path]:
        return [path for path in self._folder.glob("checkpoint-*") if _NAME.fullmatch(path.name)]


def _state(checkpoint: Path) -> dict[str, Any]:
    """Returns the trainer's state; empty if the checkpoint is incomplete."""
    try:
        state: dict[str, Any] = json.loads((checkpoint / _STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return state
