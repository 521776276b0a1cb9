"""The checkpoint of pre-training: one file with everything that is needed to resume."""

from __future__ import annotations

import math
import os
import pickle
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from kernel_assistant.errors import InternalError, UsageError
from kernel_assistant_training.saving import first_line, flush, last_checkpoint, written


class Checkpoint:
    """The checkpoint file of pre-training. It is written completely or not at all, and never with values that are not
    finite. `due`: whether `every` seconds have passed since it was last saved."""

    def __init__(self, file: Path, model: nn.Module, optimisers: Sequence[Optimizer], every: float) -> None:
        self._file, self._model, self._optimisers, self._every = file, model, optimisers, every
        self._saved = time.monotonic()

    @property
    def due(self) -> bool:
        return time.monotonic() - self._saved >= self._every

    def save(self, progress: dict[str, Any], norm: Tensor | None) -> None:
        """Saves model, optimisers and `progress` (counters of the caller). `norm` is the gradient norm of the last
        step, None if there was no step. Raises InternalError if the norm is not finite, and StoreError if the file
        cannot be written."""
        if norm is not None:
            self.check({"gradient_norm": norm.item()})
        fresh = self._file.with_suffix(".new")
        states = [optimiser.state_dict() for optimiser in self._optimisers]
        try:
            with written(self._file, self.named()):
                torch.save({"model": self._model.state_dict(), "optimisers": states, "progress": progress}, fresh)
                flush(fresh)
                os.replace(fresh, self._file)
        finally:
            fresh.unlink(missing_ok=True)
        self._saved = time.monotonic()

    def check(self, figures: dict[str, float]) -> None:
        """Raises InternalError if a metric is not finite, because then the weights are not finite either."""
        odd = [name for name, figure in figures.items() if not math.isfinite(figure)]
        if odd:
            raise InternalError(f"{', '.join(odd)} not finite; {self.named()}", "go on from there with a lower --rate")

    def load(self, device: torch.device) -> dict[str, Any] | None:
        """Loads model and optimisers. Returns the `progress` that was saved, or None if there is no file. Raises
        UsageError if the file belongs to another model or is damaged."""
        if not self._file.is_file():
            return None
        try:
            state = torch.load(self._file, map_location=device, weights_only=True)
            self._model.load_state_dict(state["model"])
            for optimiser, known in zip(self._optimisers, state["optimisers"], strict=True):
                optimiser.load_state_dict(known)
        except (RuntimeError, ValueError, KeyError, EOFError, pickle.UnpicklingError) as error:
            cause = f"{self._file} is no checkpoint of this model: {first_line(error)}"
            raise UsageError(cause, "remove it to begin anew, or name another folder: --out") from error
        progress: dict[str, Any] = state["progress"]
        return progress

    def named(self) -> str:
        """Returns a text for error messages that names the checkpoint from which to resume."""
        return last_checkpoint(self._file if self._file.is_file() else None)
