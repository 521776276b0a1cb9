"""A recipe, run once for all tests of a file that examine its results."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from kernel_assistant.environment import device_locks, template_key
from tests.common.caches import new_cache

#: Seconds for all stages on a machine that other work shares.
MOST = 2300


def run_of(recipe: str, folder: Path, python_path: str, *words: str) -> Path:
    """The folder of a run of `recipe` with further options, below `folder`, which also has the run's own home. Raises
    AssertionError if it fails.
    """
    run = folder / "run"
    new_cache(folder / "home" / "cache")
    kept = (device_locks.FOLDER, template_key.VARIABLE)
    own = {"KERNEL_ASSISTANT_HOME": str(folder / "home"), "PYTHONPATH": python_path}
    env = {name: one for name, one in os.environ.items() if not name.startswith("KERNEL_ASSISTANT_") or name in kept}
    command = [sys.executable, "-m", "kernel_assistant", "train", "--recipe", recipe, "--out", str(run), *words]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(command, env=env | own, timeout=MOST, check=False, **output)
    assert done.returncode == 0, done.stdout
    return run
