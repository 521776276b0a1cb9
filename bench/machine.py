"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

from kernel_assistant.environment.compile import compiler_version
from kernel_assistant.targets import cpu, cuda
from kernel_assistant.targets.base import DeviceFacts


def describe(device: DeviceFacts) -> dict[str, str]:
    """Device, cores, driver, torch, compiler and the load while it was taken."""
    host = cpu.facts()
    path = cuda.compiler() if device.target == "cuda" else cpu.compiler()
    gpu = {"GPU": f"{device.name}, {device.arch}", "driver": device.driver} if device.target == "cuda" else {}
    return {
        **gpu,
        "CPU": f"{host.name}, {host.arch}",
        "cores": str(host.cores),
        "memory": f"{host.memory_bytes / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "torch": _torch(),
        "compiler": compiler_version(path).splitlines()[-1 if device.target == "cuda" else 0],
        "load average": " ".join(f"{value:.2f}" for value in os.getloadavg()),
    }


def _torch() -> str:
    program = "import torch; print(torch.__version__, torch.get_num_threads(), 'threads')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "none"
