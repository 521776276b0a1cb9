"""Whether kernels that were made on another machine can run on this one."""

from __future__ import annotations

from pathlib import Path

from kernel_assistant.records import decode
from kernel_assistant.store import JobRow
from kernel_assistant.targets import cpu, cuda
from kernel_assistant.targets.base import DeviceFacts


def cannot_run_here(row: JobRow) -> str:
    """One line where this machine lacks what the job's kernels were built for, else empty. The applied guard decides
    the same at run time, and runs the original there."""
    path = Path(row.result.artifacts.get("device.json", "")) if row.result else Path()
    if not path.is_file():
        return ""
    built_for = decode(path.read_bytes(), DeviceFacts)
    lack = _no_gpu(built_for) if built_for.target == "cuda" else _other_cpu(built_for)
    return f"the kernels are for {built_for.name} ({built_for.arch}) and {lack}: here the original runs" if lack else ""


def _no_gpu(built_for: DeviceFacts) -> str:
    archs = {device.arch for device in cuda.gpus()}
    if not archs:
        return "this machine has no NVIDIA GPU"
    return "" if built_for.arch in archs else f"this machine has {', '.join(sorted(archs))}"


def _other_cpu(built_for: DeviceFacts) -> str:
    here = cpu.architecture()
    return "" if here == built_for.arch or here.startswith(f"{built_for.arch}-") else f"this machine is {here}"
