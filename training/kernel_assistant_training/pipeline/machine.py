"""What a run was made on, and from which sources."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import kernel_assistant
from kernel_assistant.targets import cpu, cuda

_PACKAGES = ("torch", "transformers", "trl", "accelerate", "peft")
_ROOT = Path(kernel_assistant.__file__).parent.parent


def describe(target: str) -> dict[str, str]:
    """Devices, processors, packages and the commit that the sources are of."""
    host = cpu.facts()
    gpus = [f"{one.name}, driver {one.driver}" for one in cuda.gpus()] if target == "cuda" else []
    packages = {name: found for name in _PACKAGES if (found := _version(name))}
    return {
        **({"GPUs": "; ".join(gpus) or "none"} if target == "cuda" else {}),
        "CPU": f"{host.name}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{host.memory_bytes / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "packages": ", ".join(f"{name} {found}" for name, found in packages.items()),
        "kernel-assistant": f"{kernel_assistant.__version__}{_commit()}",
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _commit() -> str:
    """Of a checkout; an installed package has none."""
    if not (_ROOT / ".git").exists():
        return ""
    # Without a refreshed index: nothing is written into a checkout.
    words = ["git", "--no-optional-locks", "-C", str(_ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return f", commit {done.stdout.strip()}" if done.returncode == 0 else ""
