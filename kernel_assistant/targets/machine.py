"""Describes this machine and the version of the sources, for people who read a report of measurements or of
training."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import distributions
from pathlib import Path

from kernel_assistant.targets import cpu, cuda
from kernel_assistant.version import __version__


def describe(target: str, packages: Sequence[str] = ()) -> dict[str, str]:
    """Returns name → text for people: the GPUs (only for "cuda"), processor, memory, system, the versions of those of
    `packages` that are installed, and the version of this tool with the commit of its sources."""
    host = cpu.facts()
    gpus = "; ".join(f"{one.name}, {one.arch}, driver {one.driver}" for one in cuda.gpus()) or "none"
    installed = {one.name: one.version for one in distributions() if one.name in packages}
    versions = ", ".join(f"{name} {installed[name]}" for name in packages if name in installed)
    return {
        **({"GPUs": gpus} if target == "cuda" else {}),
        "CPU": f"{host.name}, {host.arch}, {host.cores} cores",
        "memory": f"{host.memory_bytes / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        **({"packages": versions} if versions else {}),
        "kernel-assistant": f"{__version__}{_commit()}",
    }


def _commit() -> str:
    """Returns the commit of a source checkout, as text that is appended to the version; "" for an installed package."""
    root = Path(__file__).parent.parent.parent
    # Git must not refresh its index: nothing is written into a checkout.
    words = ["git", "--no-optional-locks", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    with suppress(OSError, subprocess.SubprocessError):
        if (root / ".git").exists():
            done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=30)
            return f", commit {done.stdout.strip()}"
    return ""
