"""At the end: the exported model gets a name, and is used where that is asked for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from kernel_assistant.errors import UsageError
from kernel_assistant.serving.registry import entries
from kernel_assistant_training.pipeline.state import RunFolder


def exported(run: RunFolder) -> Path | None:
    """The model that the last export stage left: a GGUF file or a folder."""
    for place in range(len(run.recipe.stage) - 1, -1, -1):
        if run.recipe.stage[place].of_kind == "export" and run.done(place) is not None:
            folder = run.folder(place)
            files = sorted(folder.glob("*.gguf")) + [path for path in [folder / "model"] if path.is_dir()]
            return files[0] if files else None
    return None


def finish(run: RunFolder, name: str, *, use: bool) -> Iterator[str]:
    """Does it, and says what was done. Raises UsageError where the user's list of models cannot be read."""
    model = exported(run)
    if model is None:
        yield "no model was exported: the recipe has no export stage"
        return
    yield f"model: {model}, {_size(model) / 1e6:.1f} MB"
    known = entries().get(name)
    if known is not None and known.where != str(model):
        yield f"{name} stands for {known.where} already: kernel-assistant models add OTHER-NAME {model}"
        return
    if known is None:
        # What is shipped is small and reads the compact prompts; so does what was trained here from it or like it.
        compact = ["--compact"] if model.is_file() else []
        yield _models("add", name, str(model), *compact)
    yield _models("use", name) if use else f"use it: kernel-assistant models use {name}"


def _models(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "kernel_assistant", "models", *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        cause, _, step = done.stderr.strip().partition("\n")
        raise UsageError(f"models {words[0]}: {cause.removeprefix('error: ')}", step.removeprefix("next: "))
    return done.stdout.strip()


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else sum(file.stat().st_size for file in path.rglob("*"))
