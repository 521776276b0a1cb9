"""The command that starts a child process with llama.cpp."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from kernel_assistant.errors import MissingError
from kernel_assistant.serving.request import ServeRequest

#: The number of simultaneous conversations; each has `context` tokens.
SLOTS = 4
DEFAULT_CONTEXT = 4096
READY_SECONDS = 300.0


def check_installed() -> None:
    """Raises MissingError if llama.cpp is not installed."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise MissingError("llama.cpp is not installed", "pip install xllamacpp")


def command(model: Path, request: ServeRequest, *, name: str) -> tuple[str, ...]:
    """Returns the child's command line. The key is in its environment."""
    context = request.context or DEFAULT_CONTEXT
    child = str(Path(__file__).parent / "llama_child.py")
    words = [
        sys.executable,
        "-P",
        child,
        str(model),
        "--name",
        name,
        "--host",
        request.host,
        "--port",
        str(request.port),
    ]
    return (*words, "--context", str(context), "--slots", str(SLOTS), "--threads", str(threads()))


def environment(key: str) -> dict[str, str]:
    """Returns the environment variables of the child."""
    return {**os.environ, "LLAMA_API_KEY": key, "PYTHONUNBUFFERED": "1"}


def threads() -> int:
    """Returns the number of threads: half of the cores. The model is small, and the others compile and measure."""
    return max(1, min(8, len(os.sched_getaffinity(0)) // 2)) if hasattr(os, "sched_getaffinity") else 2
