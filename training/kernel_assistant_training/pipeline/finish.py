"""Ends a run: registers the exported model under a name and, on request, selects it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from kernel_assistant.errors import UsageError
from kernel_assistant.serving.registry import entries
from kernel_assistant_training.pipeline.run_folder import PipelineFolder


def exported(run: PipelineFolder) -> Path | None:
    """Returns the model that the last finished export stage wrote, a GGUF file or a folder; None if there is none."""
    made = [index for index, stage in enumerate(run.recipe.stage) if stage.kind == "export" and run.done(index)]
    files = [file for index in made[-1:] for name in ("*.gguf", "model") for file in run.folder(index).glob(name)]
    return files[0] if files else None


def finish(run: PipelineFolder, name: str, *, use: bool) -> Iterator[str]:
    """Registers the exported model under `name` in the user's list of models and, if `use`, selects it. Yields lines
    that report this to the user. Raises UsageError if the list cannot be read or changed."""
    model = exported(run)
    if model is None:
        yield "no model was exported: the recipe has no export stage"
        return
    size = sum(file.stat().st_size for file in [model, *model.rglob("*")] if file.is_file())
    yield f"model: {model}, {size / 1e6:.1f} MB"
    known = entries().get(name)
    if known is not None and known.where != str(model):
        yield f"{name} stands for {known.where} already: kernel-assistant models add OTHER-NAME {model}"
        return
    if known is None:
        # The shipped model uses the compact prompts, and so does a GGUF file that was trained here.
        yield _models("add", name, str(model), *(["--compact"] if model.is_file() else []))
    yield _models("use", name) if use else f"use it: kernel-assistant models use {name}"


def _models(*words: str) -> str:
    command = [sys.executable, "-m", "kernel_assistant", "models", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        cause, _, step = done.stderr.strip().partition("\n")
        raise UsageError(f"models {words[0]}: {cause.removeprefix('error: ')}", step.removeprefix("next: "))
    return done.stdout.strip()
