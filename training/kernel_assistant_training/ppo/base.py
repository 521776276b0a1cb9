"""The model that a stage begins with: any causal language model of transformers, as PPO needs it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from kernel_assistant.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

#: Below a checkpoint that has one.
ADAPTER = "adapter"
#: From so many parameters on layers are checkpointed by themselves.
LARGE = 1_000_000_000


@dataclass(frozen=True)
class ModelOptions:
    """`lora` is the rank of adapters, 0 trains all weights; a folder that has adapters goes on with those. Layers are
    `checkpointing`: only their inputs are kept for the backward pass; None for large models alone."""

    lora: int = 0
    checkpointing: bool | None = None


def folder_of(base: Path) -> Path:
    """A folder as it is; a hub name becomes one. Raises UsageError."""
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
    """On the CPU, without dropout. Raises UsageError."""
    # Not before a model is wanted: it takes longer than to read a stage's options.
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging

    # A bar for each of hundreds of checkpoints would be all that one sees.
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        config = without_dropout(AutoConfig.from_pretrained(folder))
        # The fused kernels leave the cap out.
        capped = getattr(config.get_text_config(), "attn_logit_softcapping", None)
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=dtype, attn_implementation="eager" if capped else "sdpa"
        )
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder} holds no model: {error}", "name a folder that sft or pretrain wrote") from error
    model.config.use_cache = False
    return model  # type: ignore[no-any-return]


def without_dropout(config: PreTrainedConfig) -> PreTrainedConfig:
    """PPO compares two passes over the same tokens."""
    for part in {id(one): one for one in (config, config.get_text_config())}.values():
        for name, found in list(vars(part).items()):
            if name.endswith(("dropout", "pdrop", "dropout_prob")) and isinstance(found, float):
                setattr(part, name, 0.0)
    return config


def logits_of(model: PreTrainedModel, states: torch.Tensor) -> torch.Tensor:
    """(…, width) behind the last norm → (…, vocabulary) in float32, as the model's own forward pass makes them."""
    config: Any = model.config.get_text_config()
    whole: Any = model
    found: torch.Tensor = whole.get_output_embeddings()(states).float()
    if (scale := getattr(config, "logit_scale", None)) is not None:
        found = found * scale
    if (divisor := getattr(config, "logits_scaling", None)) is not None:
        found = found / divisor
    if (cap := getattr(config, "final_logit_softcapping", None)) is not None:
        found = cap * torch.tanh(found / cap)
    return found
