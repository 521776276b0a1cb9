"""Opens the model that fine-tuning trains: a model of the project's own family, or any model of transformers, with its
adapters if it has any."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Protocol

import torch
from transformers import AutoModelForCausalLM

from kernel_assistant.errors import UsageError
from kernel_assistant.serving.convert.shape import from_config
from kernel_assistant_training.architecture import Llama
from kernel_assistant_training.folder import load_folder, require_language, save_folder
from kernel_assistant_training.ppo.model.actor import HEAD, Actor
from kernel_assistant_training.ppo.model.base import ADAPTER, PolicyModelOptions, folder_of
from kernel_assistant_training.ppo.run_folder import copy_around
from kernel_assistant_training.tokenizer import load


class TunedModel(Protocol):
    """A model for fine-tuning. `model` is the object that a trainer takes, `base` the folder from which it was
    loaded."""

    model: Any
    base: Path

    def save(self, folder: Path, model: Any) -> None:
        """Saves `model`, as the trainer has trained it, into an existing folder; replaces a model that was saved there
        before."""


class BuiltInModel:
    """A model of the family that `pretrain` makes. `save` writes it in files of limited size, with the vocabulary of
    this repository."""

    def __init__(self, base: Path, own: Llama) -> None:
        self.base, self._own = base, own
        self.model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)

    def save(self, folder: Path, model: Any) -> None:
        weights = {name: weight for name, weight in model.state_dict().items() if name != "lm_head.weight"}
        self._own.load_state_dict(weights)
        save_folder(self._own, folder)


class HuggingFaceModel:
    """A model of any family, loaded and saved as in PPO. `save` writes the value head and either all weights or, if
    there are adapters, only the adapters."""

    def __init__(self, base: Path, lora: int) -> None:
        self.base = base
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._actor = Actor.load(base, device, PolicyModelOptions(lora))
        self.model = self._actor.model

    def save(self, folder: Path, model: Any) -> None:
        for part in (HEAD.parent, Path(ADAPTER)):
            shutil.rmtree(folder / part, ignore_errors=True)
        copy_around(self.base, folder)
        self._actor.save(folder)


def open_tuned(base: Path, lora: int = 0) -> TunedModel:
    """Opens the model of a folder, a hub name or a checkpoint. `lora` is the rank of new adapters, 0 for none. Raises
    UsageError if there is no such model."""
    base = folder_of(base)
    require_language(base)
    if lora or (base / ADAPTER).is_dir() or not _speaks_ours(base):
        return HuggingFaceModel(base, lora)
    return BuiltInModel(base, load_folder(base))


def _speaks_ours(base: Path) -> bool:
    """Whether the folder holds a Llama with tied embeddings and the vocabulary of this repository, as `pretrain`
    makes."""
    file = base / "tokenizer.json"
    try:
        plain = from_config(json.loads((base / "config.json").read_text(encoding="utf-8"))).tied
    except (OSError, ValueError, KeyError, UsageError):
        return False
    return plain and file.is_file() and load(base).get_vocab() == load().get_vocab()
