"""The recipe `smoke`, run once for all tests that examine its results."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from kernel_assistant.environment import device_locks, template_key
from tests.common.caches import new_cache

#: Seconds for all stages on a machine that other work shares.
MOST = 2300


def chain_in(folder: Path, python_path: str, *words: str) -> Path:
    """The run's folder in `folder`, made with a home of its own there. The first process makes it, others wait."""
    run = folder / "run"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            new_cache(folder / "home" / "cache")
            done = subprocess.run(
                [sys.executable, "-m", "kernel_assistant", "train", "--recipe", "smoke", "--out", str(run), *words],
                env={
                    **{
                        name: one
                        for name, one in os.environ.items()
                        if not name.startswith("KERNEL_ASSISTANT_")
                        or name in (device_locks.FOLDER, template_key.VARIABLE)
                    },
                    "KERNEL_ASSISTANT_HOME": str(folder / "home"),
                    "PYTHONPATH": python_path,
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=MOST,
                check=False,
            )
            (folder / "said").write_text(done.stdout)
            assert done.returncode == 0, done.stdout
            (folder / "made").touch()
    return run
