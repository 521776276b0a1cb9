"""Checks whether kernels that were made on another machine can run on this one."""

from __future__ import annotations

import re
from pathlib import Path

from kernel_assistant.records import decode
from kernel_assistant.store import JobRow
from kernel_assistant.targets import cpu, cuda
from kernel_assistant.targets.base import DeviceFacts


def cannot_run_here(row: JobRow) -> str:
    """Returns a line that says why this machine cannot run the job's kernels; "" if it can. The guard of applied
    kernels checks the same at run time (`worker/applied/binaries.py`), and then runs the original."""
    artifacts = row.result.artifacts if row.result else {}
    path = Path(artifacts.get("device.json", ""))
    if not path.is_file():
        return ""
    built_on = decode(path.read_bytes(), DeviceFacts)
    archs = {built_on.arch, *re.findall(r"binaries/kernels\.([\w-]+)\.", " ".join(artifacts))}
    lack = _lacks_gpu(archs) if built_on.target == "cuda" else _lacks_cpu(archs)
    names = ", ".join(sorted(archs))
    return f"the kernels are for {built_on.name} ({names}) and {lack}: here the original runs" if lack else ""


def _lacks_gpu(archs: set[str]) -> str:
    here = {device.arch for device in cuda.gpus()}
    if not here:
        return "this machine has no NVIDIA GPU"
    fits = any(_cubin_runs(arch, device) for arch in archs for device in here)
    return "" if fits else f"this machine has {', '.join(sorted(here))}"


def _cubin_runs(arch: str, device: str) -> bool:
    """Whether a cubin for `arch` runs on `device`: the same major version, and the same or a higher minor version."""
    built, has = arch.removeprefix("sm_"), device.removeprefix("sm_")
    if not (built.isdigit() and has.isdigit()):
        return arch == device
    return built[:-1] == has[:-1] and built[-1] <= has[-1]


def _lacks_cpu(archs: set[str]) -> str:
    """Returns the reason why this CPU cannot run kernels for the architectures `archs`; "" if it can. A processor of
    one x86-64 level also runs code for lower levels. Single processor features are checked by the guard, not here."""
    here = cpu.architecture()
    levels = ["x86-64", "x86-64-avx2", "x86-64-avx512"]
    usable = levels[: levels.index(here) + 1] if here in levels else [here]
    return "" if archs.intersection(usable) else f"this machine is {here}"
