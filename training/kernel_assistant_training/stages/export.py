"""Exports a model: `python -m kernel_assistant_training export FOLDER FILE` writes the model in FOLDER as 8-bit GGUF
and checks the file.

The check reads the file again: the weights must differ by no more than rounding to 8 bits, and texts must give the same
tokens. With `--form folder` a Hugging Face folder is written instead, with adapters merged into their base. `export
--run RUN --checkpoint N OUT` writes both forms into OUT.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from kernel_assistant.errors import InternalError, UsageError
from kernel_assistant.serving.convert.to_folder import to_folder
from kernel_assistant.serving.convert.to_gguf import to_gguf
from kernel_assistant.serving.language import TRAINED_NAME
from kernel_assistant_training.folder import load_folder
from kernel_assistant_training.options.checkpoints import one
from kernel_assistant_training.options.stages import LARGEST, ExportArguments
from kernel_assistant_training.saving import written

#: Largest relative error of 8 bits: half of a step, of which there are 127 on each side, and the rounding of the step
#: to float16.
_ERROR = 0.5 / 127 + 2**-10


def export(folder: Path, file: Path, *, name: str = TRAINED_NAME, largest: int = LARGEST) -> dict[str, Any]:
    """Writes the model in `folder` as GGUF to `file` and checks it; returns `bytes`, `parameters` (numbers) and
    `largest_error` (relative). Raises UsageError for a file with more than `largest` bytes, InternalError if the check
    fails."""
    to_gguf(folder, file, name=name)
    size = file.stat().st_size
    if size > largest:
        raise UsageError(f"{file} has {size:,} bytes, more than {largest:,}", "train a smaller one")
    before = load_folder(folder).state_dict()
    with tempfile.TemporaryDirectory() as back:
        to_folder(file, Path(back))
        after = load_folder(Path(back)).state_dict()
        _same_tokens(folder, Path(back))
    errors = {key: _error(weight, after[key]) for key, weight in before.items()}
    worst = max(errors, key=lambda key: errors[key])
    if before.keys() != after.keys() or not errors[worst] <= _ERROR:
        raise InternalError(f"{worst} comes back from {file} with an error of {errors[worst]:.2g}", "report this")
    parameters = sum(weight.numel() for weight in before.values())
    return {"bytes": size, "parameters": parameters, "largest_error": round(errors[worst], 6)}


def as_folder(source: Path, target: Path) -> dict[str, Any]:
    """Writes a folder that transformers and vLLM can load: the model in `source` with its adapters merged. Returns
    `bytes`, `parameters` (numbers) and `merged` (whether there were adapters). The folder is written under a temporary
    name and then renamed. Raises UsageError if `source` holds no model, StoreError for a full disk."""
    from transformers import AutoTokenizer

    from kernel_assistant_training.ppo.model import adapter
    from kernel_assistant_training.ppo.model.base import ADAPTER, load_base

    adapted = (source / ADAPTER).is_dir()
    model: Any = load_base(adapter.base_of(source) if adapted else source, torch.bfloat16)
    if adapted:
        model = adapter.Adapters.load(model, source).peft.merge_and_unload()
    partial = target.with_name(f"{target.name}.partial")
    with written(target):
        shutil.rmtree(partial, ignore_errors=True)
        # Training turns it off, and users of the model need it on.
        model.config.use_cache = True
        model.save_pretrained(partial)
        AutoTokenizer.from_pretrained(source).save_pretrained(partial)
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)
    size = sum(file.stat().st_size for file in target.iterdir())
    return {"bytes": size, "parameters": sum(weight.numel() for weight in model.parameters()), "merged": adapted}


def _error(before: torch.Tensor, after: torch.Tensor) -> float:
    return float((before - after).abs().max() / before.abs().max())


def _same_tokens(folder: Path, back: Path) -> None:
    from transformers import AutoTokenizer

    before, after = AutoTokenizer.from_pretrained(folder), AutoTokenizer.from_pretrained(back)
    for text in (Path(__file__).read_text(encoding="utf-8"), "D12=4096 C0=1e-05\n\n  größe 🙂<|im_end|><tool_call>"):
        if before(text)["input_ids"] != after(text)["input_ids"]:
            raise InternalError("the tokenizer that comes back from the file cuts text differently", "report this")


def main(options: ExportArguments) -> None:
    *folders, target = options.paths
    if len(folders) + (options.run is not None) != 1:
        raise UsageError("which model is to be exported?", "use export FOLDER FILE, or export --run RUN OUT")
    form = options.form or ("gguf" if options.run is None else "both")
    source = folders[0] if options.run is None else one(options.run, options.checkpoint)
    folder, file = target, target
    if form == "both":
        folder, file = target / "model", target / "kernel-assistant.gguf"
    file.parent.mkdir(parents=True, exist_ok=True)
    figures = as_folder(source, folder) if form != "gguf" else {}
    if form != "folder":
        # Only the folder has the adapters merged.
        whole = folder if figures.get("merged") else source
        figures = {**figures, **export(whole, file, largest=options.largest)}
    sys.stdout.write(json.dumps(figures) + "\n")
