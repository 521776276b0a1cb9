"""Saves and loads a model as a Hugging Face folder: weights in parts, configuration and vocabulary."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from kernel_assistant.errors import UsageError
from kernel_assistant.serving.convert.shape import from_config, to_config
from kernel_assistant.serving.language import LANGUAGE, is_earlier
from kernel_assistant.serving.llama.gguf_header import LANGUAGE_FIELD
from kernel_assistant.serving.template import CONTROL_TOKENS, TURN_END
from kernel_assistant_training.architecture import Llama
from kernel_assistant_training.tokenizer import VOCABULARY, id_of, load

RETRAIN = "train it again, from pretrain on: kernel-assistant train"
#: Bytes of one part: files from a borrowed machine may have at most 16 MiB.
PART = 15 << 20


def save_folder(model: Llama, folder: Path, *, part: int = PART) -> None:
    """Saves the model's weights in bfloat16, in files of at most `part` bytes, with its configuration and the
    vocabulary files of this repository."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = load()
    special = {"bos": None, "eos": id_of(tokenizer, TURN_END), "pad": id_of(tokenizer, CONTROL_TOKENS[0])}
    config = {**to_config(model.shape, special), "dtype": "bfloat16", LANGUAGE_FIELD: LANGUAGE}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    generation = {"eos_token_id": special["eos"], "pad_token_id": special["pad"]}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=1) + "\n", encoding="utf-8")
    for file in VOCABULARY.iterdir():
        shutil.copy(file, folder)
    _save_weights(model, folder, part)


def require_language(folder: Path) -> None:
    """Raises UsageError if the model in `folder` writes kernels in an earlier version of the kernel language."""
    if is_earlier(folder):
        raise UsageError(f"the model in {folder} writes kernels in an earlier language", RETRAIN)


def load_folder(folder: Path) -> Llama:
    """Loads a model with weights in float32. Raises UsageError if the folder holds no model with tied embeddings, or a
    model that writes kernels in an earlier version of the kernel language."""
    try:
        shape = from_config(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder} holds no model: {error}", "name a folder that pretrain wrote") from error
    require_language(folder)
    weights: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        weights |= load_file(file)
    model = Llama(shape)
    model.load_state_dict({name: weight.float() for name, weight in weights.items()})
    return model


def _save_weights(model: Llama, folder: Path, part: int) -> None:
    parts: list[dict[str, torch.Tensor]] = [{}]
    room = part
    for name, weight in model.state_dict().items():
        half = weight.detach().to("cpu", torch.bfloat16).contiguous()
        room -= half.nbytes
        if room < 0:
            parts.append({})
            room = part - half.nbytes
        parts[-1][name] = half
    files: dict[str, str] = {}
    for number, weights in enumerate(parts, 1):
        file = f"model-{number:05}-of-{len(parts):05}.safetensors"
        save_file(weights, folder / file, metadata={"format": "pt"})
        files |= dict.fromkeys(weights, file)
    size = sum(weight.nbytes for weights in parts for weight in weights.values())
    index = {"metadata": {"total_size": size}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
