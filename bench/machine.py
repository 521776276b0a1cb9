"""Describes the machine on which figures were measured."""

from __future__ import annotations

import os
import subprocess
import sys

from kernel_assistant.environment.builds.compile import compiler_version
from kernel_assistant.targets import cpu, cuda, machine
from kernel_assistant.targets.base import DeviceFacts


def describe(device: DeviceFacts) -> dict[str, str]:
    """Devices, memory, system, torch, compiler and the current load."""
    path = cuda.compiler() if device.target == "cuda" else cpu.compiler()
    return {
        **machine.describe(device.target),
        "torch": _torch(),
        "compiler": compiler_version(path).splitlines()[-1 if device.target == "cuda" else 0],
        "load average": " ".join(f"{value:.2f}" for value in os.getloadavg()),
    }


def _torch() -> str:
    program = "import torch; print(torch.__version__, torch.get_num_threads(), 'threads')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "none"
