"""The model that fine-tuning trains: the project's own, or any of transformers, with adapters if it has some."""

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
    """`model` is what a trainer takes, `base` the folder that it was loaded from."""

    model: Any
    base: Path

    def save(self, folder: Path, model: Any) -> None:
        """Saves the trained `model` (the trainer's) into an existing folder, replacing what was saved there before."""


class BuiltInModel:
    """A model of `pretrain`'s family: saved in parts with the committed vocabulary, as `save_folder` does."""

    def __init__(self, base: Path, own: Llama) -> None:
        self.base, self._own = base, own
        self.model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)

    def save(self, folder: Path, model: Any) -> None:
        weights = {name: weight for name, weight in model.state_dict().items() if name != "lm_head.weight"}
        self._own.load_state_dict(weights)
        save_folder(self._own, folder)


class HuggingFaceModel:
    """A model of any family, loaded and saved as in PPO: only the adapters if there are some, and the value head."""

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
    """Opens a folder, a hub name or a checkpoint; `lora` is the rank of new adapters. Raises UsageError."""
    base = folder_of(base)
    require_language(base)
    if lora or (base / ADAPTER).is_dir() or not _speaks_ours(base):
        return HuggingFaceModel(base, lora)
    return BuiltInModel(base, load_folder(base))


def _speaks_ours(base: Path) -> bool:
    """Whether the folder holds a plain Llama with the committed vocabulary."""
    file = base / "tokenizer.json"
    try:
        plain = from_config(json.loads((base / "config.json").read_text(encoding="utf-8"))).tied
    except (OSError, ValueError, KeyError, UsageError):
        return False
    return plain and file.is_file() and load(base).get_vocab() == load().get_vocab()
