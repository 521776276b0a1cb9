"""What ships: `python -m kernel_assistant_training export FOLDER FILE` writes a folder as 8-bit GGUF and checks it.

The check: read back, the weights differ by no more than 8 bits do, and the text is cut in the same way. With `--form
folder` it becomes a Hugging Face folder of its own instead, adapters merged into their base. `export --run RUN
--checkpoint N OUT` writes both into OUT.
"""

from __future__ import annotations

import argparse
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
from kernel_assistant_training.folder import load_folder
from kernel_assistant_training.ppo.checkpoints import one
from kernel_assistant_training.saving import written

#: Bytes: tracked files of the repository stay small.
LARGEST = 13_000_000
FORMS = ("gguf", "folder", "both")
#: Of 127 steps on each side, and the step is a float16: relative to the largest weight of a tensor.
_ERROR = 0.5 / 127 + 2**-10


def export(folder: Path, file: Path, *, name: str = "kernel-assistant", largest: int = LARGEST) -> dict[str, Any]:
    """Size, parameters and the largest error. Raises UsageError for a model that is too large, InternalError."""
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
    """What transformers and vLLM load: `source` with the adapters that it has merged. Written beside and renamed.
    Raises UsageError where it holds no model, StoreError for a full disk."""
    from transformers import AutoTokenizer

    from kernel_assistant_training.ppo import adapter
    from kernel_assistant_training.ppo.base import ADAPTER, load_base

    adapted = (source / ADAPTER).is_dir()
    model: Any = load_base(adapter.base_of(source) if adapted else source, torch.bfloat16)
    if adapted:
        model = adapter.Adapters.load(model, source).peft.merge_and_unload()
    partial = target.with_name(f"{target.name}.partial")
    with written(target):
        shutil.rmtree(partial, ignore_errors=True)
        # It is off while training, and it is the model's to say.
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


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="kernel_assistant_training export", description=__doc__)
    found.add_argument("folder", type=Path, nargs="?", help="what pretrain or sft wrote")
    found.add_argument("file", type=Path, help="kernel_assistant/serving/models/kernel-assistant.gguf ships")
    found.add_argument("--run", type=Path, help="a folder of ppo-single or ppo-agent, instead of FOLDER")
    found.add_argument("--checkpoint", default="newest", help="of --run: a number, newest or first")
    found.add_argument(
        "--form", choices=FORMS, help="8 bits in one file (gguf), Hugging Face's folder, or OUT with both"
    )
    found.add_argument("--largest", type=int, default=LARGEST, help="bytes that the file may have")
    return found


def main(words: list[str]) -> None:
    options = parser().parse_args(words)
    if (options.run is None) == (options.folder is None):
        raise UsageError("which model is to be exported?", "use export FOLDER FILE, or export --run RUN OUT")
    source, form = options.folder, options.form or "gguf"
    if options.run is not None:
        source, form = one(options.run, options.checkpoint), options.form or "both"
    folder, file = options.file, options.file
    if form == "both":
        folder, file = options.file / "model", options.file / "kernel-assistant.gguf"
    file.parent.mkdir(parents=True, exist_ok=True)
    figures = as_folder(source, folder) if form != "gguf" else {}
    if form != "folder":
        # Adapters are merged in the folder alone.
        whole = folder if figures.get("merged") else source
        figures = {**figures, **export(whole, file, largest=options.largest)}
    sys.stdout.write(json.dumps(figures) + "\n")
