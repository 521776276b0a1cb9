"""The command that starts a child process with llama.cpp."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from kernel_assistant.errors import MissingError
from kernel_assistant.serving.llama.gguf_header import read_header
from kernel_assistant.serving.request import ServeRequest

#: The most simultaneous conversations; each has the whole context.
SLOTS = 4
#: Tokens of a context where the file does not say what it was made for, and the least that a model gets.
DEFAULT_CONTEXT = 4096
#: Share of the free memory that keys and values may take.
SHARE_OF_MEMORY = 0.25
READY_SECONDS = 300.0


def check_installed() -> None:
    """Raises MissingError if llama.cpp is not installed."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise MissingError("llama.cpp is not installed", "pip install xllamacpp")


def context_and_slots(model: Path, wanted: int, free: int) -> tuple[int, int]:
    """Returns the tokens of a context, and the number of slots (simultaneous conversations). The context is `wanted`,
    or for 0 the length for which the model was made, less if memory is short. All contexts together take at most
    SHARE_OF_MEMORY of the `free` bytes, unless there is only one slot."""
    header = read_header(model)
    if header is None or not header.context or not header.token_bytes:
        return wanted or DEFAULT_CONTEXT, SLOTS
    room = int(SHARE_OF_MEMORY * free) // header.token_bytes
    context = wanted or min(header.context, max(room, DEFAULT_CONTEXT))
    return context, max(1, min(SLOTS, room // context))


def command(model: Path, request: ServeRequest, *, name: str, context: int, slots: int) -> tuple[str, ...]:
    """Returns the child's command line. The key is in its environment."""
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
    return (*words, "--context", str(context), "--slots", str(slots), "--threads", str(threads()))


def environment(key: str) -> dict[str, str]:
    """Returns the environment variables of the child."""
    return {**os.environ, "LLAMA_API_KEY": key, "PYTHONUNBUFFERED": "1"}


def threads() -> int:
    """Returns the number of threads for the model: half of the cores. The model is small, and the other cores compile
    and measure."""
    return max(1, min(8, len(os.sched_getaffinity(0)) // 2)) if hasattr(os, "sched_getaffinity") else 2
