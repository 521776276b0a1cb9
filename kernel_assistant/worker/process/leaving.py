"""Ends a process that has imported torch. Standard library only."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from typing import NoReturn


def leave(status: int) -> NoReturn:
    """Runs the exit handlers, then ends the process without the interpreter's cleanup, which takes half a second of
    processor time for torch's modules. The system frees the memory of these modules."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed, or nobody reads it
            stream.flush()
    os._exit(status)
