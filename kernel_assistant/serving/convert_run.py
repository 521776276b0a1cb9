"""Runs `kernel_assistant.serving.convert`, and caches the folders that were made from GGUF files."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from kernel_assistant.config import Settings
from kernel_assistant.errors import EXIT_USAGE, MissingError, UsageError
from kernel_assistant.serving.errors import EngineError

_ROOT = Path(__file__).parent.parent.parent
#: Part of the cache's key: increase it when the conversion of the same file changes.
_FORM = 2


def derived_folder(file: Path, settings: Settings) -> Path:
    """Returns the Hugging Face folder of a GGUF file. The folder is made once for each content of the file, in a second
    or two for ten million weights."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    folder = settings.cache_dir / "models" / f"{file.stem}-{digest}-{_FORM}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".", dir=folder.parent))
    try:
        convert("to-folder", file, fresh)
        os.chmod(fresh, 0o755)
        fresh.replace(folder)
    except OSError:
        if not folder.is_dir():  # otherwise another process was faster
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def gguf_info(file: Path) -> dict[str, Any]:
    """Returns name, architecture, number of parameters, data types of the weights and sizes of the model in a GGUF
    file."""
    document: dict[str, Any] = json.loads(convert("info", file))
    return document


def convert(what: str, *paths: Path) -> str:
    """Runs the converter's command `what` ("to-gguf", "to-folder" or "info") and returns its output. Raises the error
    that the command reports."""
    missing = [name for name in ("gguf", "safetensors") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingError(f"{missing[0]} is not installed", "pip install 'kernel-assistant[serve]'")
    done = subprocess.run(
        [sys.executable, "-m", "kernel_assistant.serving.convert", what, *map(str, paths)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        cause, _, next_step = done.stderr.strip().partition("\n")
        if done.returncode == EXIT_USAGE:
            raise UsageError(cause, next_step)
        raise EngineError(
            f"converting {paths[0]} failed (exit code {done.returncode})", "report this", detail=done.stderr
        )
    return done.stdout
