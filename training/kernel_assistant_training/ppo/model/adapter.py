"""LoRA adapters (PEFT) on a frozen base model: creates them, saves them in checkpoints and loads them again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import msgspec
import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from kernel_assistant.errors import UsageError
from kernel_assistant.records.codec import Record
from kernel_assistant_training.ppo.model.base import ADAPTER

#: Files below a checkpoint, in PEFT's format.
_WEIGHTS, _BASE = "adapter_model.safetensors", "base.json"
_NOW, _FIRST = "default", "first"
#: Bytes of a sample, and number of samples per file.
_SAMPLE, _SAMPLES = 1 << 16, 64


class BaseNamed(Record, frozen=True, kw_only=True):
    """The record in a checkpoint that names its base model: the path of that model's folder, and the folder's
    `digest`."""

    path: str
    digest: str


def base_of(folder: Path) -> Path:
    """Returns the folder of the base model that a checkpoint with adapters names. Raises UsageError if that folder is
    missing or has changed."""
    named = msgspec.json.decode((folder / ADAPTER / _BASE).read_bytes(), type=BaseNamed)
    base = Path(named.path)
    if not base.is_dir():
        raise UsageError(f"{folder} has adapters to {base}, which is not there", "put the base there again")
    if digest(base) != named.digest:
        raise UsageError(f"{base} is not the base that {folder} was trained on", "put that base there again")
    return base


def digest(folder: Path) -> str:
    """Returns a hash of the configuration and of the weight files' names, sizes and parts of their contents; it takes a
    tenth of a second for 14 GB. The hash tells base models apart, but gives no protection against forgery."""
    hasher = hashlib.sha256((folder / "config.json").read_bytes())
    for file in sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")]):
        size = file.stat().st_size
        hasher.update(f"{file.name} {size}".encode())
        with file.open("rb") as opened:
            for number in range(_SAMPLES):
                opened.seek(number * max(size - _SAMPLE, 0) // (_SAMPLES - 1))
                hasher.update(opened.read(_SAMPLE))
    return hasher.hexdigest()


class Adapters:
    """LoRA adapters, in float32, on all linear layers except the output embedding. They are inserted into the given
    model."""

    def __init__(self, peft: PeftModel, base: BaseNamed) -> None:
        self.peft, self._base = peft, base
        layer: Any
        for layer in peft.modules():
            # Autocast computes in bfloat16; without this, PEFT first copies each input in float32.
            if hasattr(layer, "cast_input_dtype_enabled"):
                layer.cast_input_dtype_enabled = False
        self._first = False

    @classmethod
    def new(cls, model: PreTrainedModel, base: Path, rank: int) -> Self:
        """Returns new adapters of this rank, which do not change the model's output yet. LoRA's α is twice the rank."""
        config = LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear")
        named = BaseNamed(path=str(base.resolve()), digest=digest(base))
        return cls(_with(model, config), named)

    @classmethod
    def load(cls, model: PreTrainedModel, folder: Path) -> Self:
        """Returns the adapters of the checkpoint in `folder`, inserted into its base `model`. Raises UsageError if they
        belong to another model."""
        named = msgspec.json.decode((folder / ADAPTER / _BASE).read_bytes(), type=BaseNamed)
        adapters = cls(_with(model, _config(folder)), named)
        adapters._take(folder, _NOW)
        return adapters

    @property
    def base(self) -> Path:
        return Path(self._base.path)

    @property
    def rank(self) -> int:
        config: Any = self.peft.peft_config[_NOW]
        return int(config.r)

    def keep_first(self, folder: Path) -> None:
        """Keeps the adapters of the checkpoint in `folder` as the initial ones, which `as_first` uses. If they change
        nothing, `as_first` uses the base model alone."""
        weights = _weights(folder)
        if any(bool(weight.any()) for name, weight in weights.items() if ".lora_B." in name):
            self.peft.add_adapter(_FIRST, _config(folder))
            self._take(folder, _FIRST)
            self.peft.set_adapter(_NOW)
            self._first = True

    @contextmanager
    def as_first(self) -> Iterator[None]:
        """A context in which the model computes as it did when the stage began. For use without gradients."""
        if not self._first:
            with self.peft.disable_adapter():
                yield
            return
        self.peft.set_adapter(_FIRST)
        try:
            yield
        finally:
            self.peft.set_adapter(_NOW)

    def save(self, folder: Path) -> None:
        """Saves the adapters into a new subfolder of an existing folder."""
        target = folder / ADAPTER
        target.mkdir()
        known: Mapping[str, Any] = get_peft_model_state_dict(self.peft, adapter_name=_NOW, save_embedding_layers=False)
        weights = {name: weight.detach().float().cpu().contiguous() for name, weight in known.items()}
        save_file(weights, target / _WEIGHTS, metadata={"format": "pt"})
        config = self.peft.peft_config[_NOW]
        config.base_model_name_or_path = self._base.path
        config.save_pretrained(str(target))
        (target / _BASE).write_bytes(msgspec.json.encode(self._base))

    def _take(self, folder: Path, name: str) -> None:
        loaded: Any = set_peft_model_state_dict(self.peft, _weights(folder), adapter_name=name)
        if loaded.unexpected_keys:
            raise UsageError(f"{folder / ADAPTER} has adapters of another model", "name the folder of a checkpoint")


def _with(model: PreTrainedModel, config: LoraConfig) -> PeftModel:
    wrapped: Any = get_peft_model(model, config)
    return wrapped  # type: ignore[no-any-return]


def _config(folder: Path) -> LoraConfig:
    config: Any = LoraConfig.from_pretrained(str(folder / ADAPTER))
    config.inference_mode = False
    return config  # type: ignore[no-any-return]


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / ADAPTER / _WEIGHTS)
