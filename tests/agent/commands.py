"""Commands as a user runs them, for all tests of a file: one state folder, one session host."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kernel_assistant.config import resolve
from kernel_assistant.session.client import Client
from tests.common.caches import new_cache
from tests.common.modules import POINTWISE

Command = Callable[..., subprocess.CompletedProcess[str]]


@contextmanager
def commands(folder: Path, python_path: str, *kept: str) -> Iterator[Command]:
    """A function: arguments → the finished process, in a folder with the module `net.py`. Of the tool's environment
    variables only those in `kept` stay.
    """
    (folder / "net.py").write_text(POINTWISE)
    new_cache(folder / "cache")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("KERNEL_ASSISTANT_") and name not in kept]:
            patch.delenv(name)
        patch.setenv("KERNEL_ASSISTANT_HOME", str(folder))
        patch.setenv("KERNEL_ASSISTANT_TARGET", "cpu")
        patch.setenv("PYTHONPATH", python_path)
        patch.chdir(folder)

        def command(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
            argv = [sys.executable, "-m", "kernel_assistant", *map(str, arguments)]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            assert done.returncode == code, done.stderr
            return done

        yield command
        Client(resolve()[0]).shutdown()
