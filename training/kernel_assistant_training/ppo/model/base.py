"""Loads the model with which a stage begins: any causal language model of transformers, set up for PPO."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from kernel_assistant.errors import UsageError
from kernel_assistant_training.folder import require_language

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

#: The subfolder of a checkpoint with adapters.
ADAPTER = "adapter"
#: Number of parameters from which activation checkpointing is the default.
LARGE = 1_000_000_000


@dataclass(frozen=True)
class PolicyModelOptions:
    """How a model is trained. `lora` is the rank of new adapters; 0 trains all weights. If the model's folder has
    adapters already, these are trained further. `checkpointing`: whether only the inputs of layers are kept for the
    backward pass; by default (None) this is so for large models only."""

    lora: int = 0
    checkpointing: bool | None = None


def folder_of(base: Path) -> Path:
    """Returns the folder of a model. If `base` is a hub name OWNER/NAME, the model is downloaded first. Raises
    UsageError if there is no such folder and the download fails."""
    if base.is_dir():
        return base
    if base.is_absolute() or str(base).startswith(".") or len(base.parts) != 2:
        raise UsageError(f"{base} is no folder", "name a model's folder, or a hub name OWNER/NAME")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    files = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model"]
    try:
        return Path(snapshot_download(str(base), allow_patterns=files))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        cause = str(error).strip().partition("\n")[0]
        raise UsageError(f"{base} could not be fetched: {cause}", "fetch it elsewhere and name its folder") from error


def load_base(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    """Loads the model in a folder, on the CPU and without dropout. Raises UsageError if the folder holds no model, or
    one that writes kernels in an earlier version of the kernel language."""
    # Imported late: it takes longer than parsing a stage's options.
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging

    require_language(folder)
    # Without this, hundreds of progress bars would hide all other output.
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        config = without_dropout(AutoConfig.from_pretrained(folder))
        # The fused attention kernels do not apply the cap.
        capped = getattr(config.get_text_config(), "attn_logit_softcapping", None)
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=dtype, attn_implementation="eager" if capped else "sdpa"
        )
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder} holds no model: {error}", "name a folder that sft or pretrain wrote") from error
    model.config.use_cache = False
    return model  # type: ignore[no-any-return]


def without_dropout(config: PreTrainedConfig) -> PreTrainedConfig:
    """Sets all dropout in the configuration to 0 and returns it. PPO compares two passes over the same tokens, which
    must agree."""
    for part in {id(one): one for one in (config, config.get_text_config())}.values():
        for name, value in list(vars(part).items()):
            if name.endswith(("dropout", "pdrop", "dropout_prob")) and isinstance(value, float):
                setattr(part, name, 0.0)
    return config


def logits_of(model: PreTrainedModel, states: torch.Tensor) -> torch.Tensor:
    """Returns the logits (…, vocabulary) in float32 for states (…, width) after the last norm, computed in the same way
    as the model's own forward pass does."""
    config: Any = model.config.get_text_config()
    whole: Any = model
    logits: torch.Tensor = whole.get_output_embeddings()(states).float()
    if (scale := getattr(config, "logit_scale", None)) is not None:
        logits = logits * scale
    if (divisor := getattr(config, "logits_scaling", None)) is not None:
        logits = logits / divisor
    if (cap := getattr(config, "final_logit_softcapping", None)) is not None:
        logits = cap * torch.tanh(logits / cap)
    return logits
