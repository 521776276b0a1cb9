"""Examines this machine: which parts are installed and which are missing; for a missing part, what does not work
without it and how to get it. Installs nothing."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from kernel_assistant.config import Settings
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.records.codec import Record

_LOW_DISK_BYTES = 2 << 30


class DiagnosisItem(Record, frozen=True, kw_only=True):
    """The result for one part of the installation, such as a compiler. `found` describes the part for users. If `ok` is
    False, `cost` says what does not work without the part, and `next_step` how to get it."""

    name: str
    ok: bool
    found: str
    cost: str = ""
    next_step: str = ""


class Diagnosis(Record, frozen=True, kw_only=True):
    """The result of `examine`. `works` is True if at least one target can be optimized for."""

    findings: tuple[DiagnosisItem, ...]
    works: bool


def examine(settings: Settings, start: Path) -> Diagnosis:
    """Examines all parts of the installation. `start` is the folder of the user's module; the Python interpreter is
    searched from there."""
    python = _python(settings, start)
    cpu = _compiler("C++ compiler", _cpu_compiler, "modules cannot be made faster on the CPU")
    nvcc = _compiler("nvcc", _cuda_compiler, "modules cannot be made faster on a GPU")
    gpus = _gpus()
    sandbox = _sandboxes(settings)
    state = _state(settings)
    findings = (python, cpu, nvcc, *gpus, *sandbox, _model(settings), *state, _host(settings))
    confined = settings.sandbox == "none" or any(finding.ok for finding in sandbox)
    device = cpu.ok or (nvcc.ok and any(gpu.ok for gpu in gpus))
    return Diagnosis(findings=findings, works=python.ok and device and confined and all(item.ok for item in state))


def _python(settings: Settings, start: Path) -> DiagnosisItem:
    from kernel_assistant.source.interpreter import find_interpreter

    try:
        interpreter = find_interpreter(start / "module.py", settings.python or None)
    except KernelAssistantError as error:
        return _lack("Python with torch", error, "nothing can be optimized")
    text = f"{interpreter.path} (Python {interpreter.version}, torch {interpreter.torch_version}; {interpreter.origin})"
    return DiagnosisItem(name="Python with torch", ok=True, found=text)


def _cpu_compiler() -> str:
    from kernel_assistant.targets import cpu

    return cpu.compiler()


def _cuda_compiler() -> str:
    from kernel_assistant.targets import cuda

    return cuda.compiler()


def _compiler(name: str, find: Callable[[], str], cost: str) -> DiagnosisItem:
    try:
        path = find()
    except KernelAssistantError as error:
        return _lack(name, error, cost)
    return DiagnosisItem(name=name, ok=True, found=f"{path} {_version(path)}".strip())


def _version(path: str) -> str:
    """Returns the version that the program `path` prints for `--version`: the number after "release" (nvcc), else the
    first version number, else "". If the program cannot be run, returns the reason in brackets."""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"(does not run: {error})"
    release = re.search(r"release (\d+\.\d+)", done.stdout) or re.search(r"(\d+\.\d+(\.\d+)?)", done.stdout)
    return release.group(1) if release else ""


def _gpus() -> list[DiagnosisItem]:
    import pynvml

    cost = "the target cuda is not there; modules are made faster for the CPU"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        next_step = "install NVIDIA's driver if this machine has such a GPU (check with nvidia-smi)"
        return [DiagnosisItem(name="GPU", ok=False, found=f"none ({error})", cost=cost, next_step=next_step)]
    try:
        return [_gpu(index) for index in range(pynvml.nvmlDeviceGetCount())]
    finally:
        pynvml.nvmlShutdown()


def _gpu(index: int) -> DiagnosisItem:
    import pynvml

    from kernel_assistant.targets.nvml import utilisation

    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    busy = utilisation(pynvml, handle)
    load = "load unknown" if busy is None else f"{busy}% busy"
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    text = (
        f"{pynvml.nvmlDeviceGetName(handle)}, sm_{major}{minor}, "
        f"{memory.free / 2**30:.0f} of {memory.total / 2**30:.0f} GiB free, {load}, "
        f"driver {pynvml.nvmlSystemGetDriverVersion()}"
    )
    return DiagnosisItem(name=f"GPU {index}", ok=True, found=text)


def _model(settings: Settings) -> DiagnosisItem:
    from kernel_assistant.serving.llama import llama
    from kernel_assistant.serving.registry import ModelKind, find

    try:
        entry = find("", settings)
        if entry.kind is ModelKind.gguf:
            llama.check_installed()
    except KernelAssistantError as error:
        return _lack("language model", error, "the generator writes kernels alone")
    return DiagnosisItem(name="language model", ok=True, found=f"{entry.name} ({entry.kind.value} {entry.where})")


def _sandboxes(settings: Settings) -> list[DiagnosisItem]:
    from kernel_assistant.sandbox.choose import probe

    statuses = probe()
    some = any(status.usable for status in statuses)
    cost = "another sandbox is used" if some else "generated code is refused, unless you say --sandbox none"
    findings = [
        DiagnosisItem(
            name=f"sandbox {status.backend}",
            ok=status.usable,
            found="works" + (f", without {', '.join(status.lacks)}" if status.lacks else "")
            if status.usable
            else status.reason,
            cost="" if status.usable else cost,
            next_step=status.next_step,
        )
        for status in statuses
    ]
    if settings.sandbox == "none":
        text = "none is used, as you have set: generated code runs with all your rights"
        findings.append(DiagnosisItem(name="sandbox setting", ok=True, found=text))
    return findings


def _state(settings: Settings) -> list[DiagnosisItem]:
    from kernel_assistant.store import Store

    try:
        Store(settings.state_dir).close()
    except KernelAssistantError as error:
        return [_lack("state folder", error, "no job can be run")]
    free = shutil.disk_usage(settings.state_dir).free
    roomy = free > _LOW_DISK_BYTES
    space = DiagnosisItem(
        name="disk space",
        ok=roomy,
        found=f"{free / 2**30:.1f} GiB free",
        cost="" if roomy else "jobs fail when the disk is full",
        next_step="" if roomy else f"free some, or delete {settings.cache_dir}, which is rebuilt as needed",
    )
    return [
        DiagnosisItem(name="state folder", ok=True, found=f"{settings.state_dir} (log: host.log, worker.log)"),
        space,
    ]


def _host(settings: Settings) -> DiagnosisItem:
    from kernel_assistant.session.client import Client

    try:
        status = Client(settings).status()
    except KernelAssistantError as error:
        return _lack("session host", error, "no job can be run until it is stopped")
    if status is None:
        return DiagnosisItem(name="session host", ok=True, found="not running; the next job starts it")
    text = f"pid {status['pid']}, version {status['version']}, {status['active_jobs']} active jobs"
    return DiagnosisItem(name="session host", ok=True, found=text)


def _lack(name: str, error: KernelAssistantError, cost: str) -> DiagnosisItem:
    return DiagnosisItem(name=name, ok=False, found=error.cause, cost=cost, next_step=error.next_step)
