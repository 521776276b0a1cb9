"""Decides for a request which engine to start, and whether the engine gets the model as a GGUF file or as a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil

from kernel_assistant.config import Settings
from kernel_assistant.errors import MissingError, UsageError
from kernel_assistant.serving import vllm
from kernel_assistant.serving.convert_run import derived_folder
from kernel_assistant.serving.engine import EngineSpec, free_port, new_key
from kernel_assistant.serving.errors import EngineShortOfMemoryError
from kernel_assistant.serving.llama import llama
from kernel_assistant.serving.registry import ModelEntry, ModelKind, find
from kernel_assistant.serving.request import ServeRequest
from kernel_assistant.serving.state import folder
from kernel_assistant.targets import nvml

ENGINES = ("auto", "vllm", "llama.cpp")


@dataclass(frozen=True)
class GpuMemory:
    """Memory of the first GPU, in bytes."""

    free: int
    total: int


def plan(request: ServeRequest, settings: Settings) -> EngineSpec:
    """Returns the engine to start for a request, after all checks that are possible before a start. Raises UsageError
    and MissingError."""
    entry = find(request.model, settings)
    if entry.kind is ModelKind.endpoint:
        raise UsageError(f"{entry.name} is served elsewhere ({entry.where})", "it can be used as it is: models use")
    gpu = gpu_memory()
    engine = _engine(entry, request, settings, gpu)
    port = free_port(request.host, request.port)
    request = msgspec.structs.replace(request, port=port)
    return _vllm(entry, request, settings, gpu) if engine == "vllm" else _llama(entry, request, settings)


def gpu_memory() -> GpuMemory | None:
    """Returns the memory of the first visible GPU, None if there is none."""
    import pynvml

    try:
        with nvml.opened() as library:
            memory = next((library.nvmlDeviceGetMemoryInfo(handle) for handle in nvml.handles(library)), None)
    except pynvml.NVMLError:
        return None
    return None if memory is None else GpuMemory(free=int(memory.free), total=int(memory.total))


def check_memory(share: float, gpu: GpuMemory) -> None:
    """Raises EngineShortOfMemoryError unless vLLM's `share` of the GPU's memory is free. vLLM allocates it at once, and
    would fail late."""
    wanted = share * gpu.total
    if wanted > gpu.free:
        fits = int(95 * gpu.free / gpu.total) / 100
        raise EngineShortOfMemoryError(
            f"the server's share of the GPU is {wanted / 2**30:.1f} GiB, and {gpu.free / 2**30:.1f} are free",
            f"--gpu-memory-share {fits}, or end what holds the memory (nvidia-smi)",
        )


def _engine(entry: ModelEntry, request: ServeRequest, settings: Settings, gpu: GpuMemory | None) -> str:
    if request.engine == "llama.cpp" and entry.kind is not ModelKind.gguf:
        raise UsageError(f"llama.cpp reads GGUF files, {entry.where} is none", "--engine vllm, or name a .gguf file")
    if request.engine != "auto" or entry.kind is not ModelKind.gguf:
        return "vllm" if request.engine == "auto" else request.engine
    try:
        vllm.find_vllm(settings)
    except MissingError:
        return "llama.cpp"
    return "vllm" if gpu else "llama.cpp"


def _vllm(entry: ModelEntry, request: ServeRequest, settings: Settings, gpu: GpuMemory | None) -> EngineSpec:
    python = vllm.find_vllm(settings)
    if gpu:
        check_memory(request.gpu_memory_share or vllm.DEFAULT_SHARE, gpu)
    derived = entry.kind is ModelKind.gguf
    source = str(derived_folder(Path(entry.where), settings)) if derived else entry.where
    key = new_key()
    command = vllm.command(python, source, request, name=entry.name, derived=derived, gpu=gpu is not None)
    environment = vllm.environment(settings, key, gpu=gpu is not None)
    return _spec("vllm", command, environment, entry, request, key, settings, vllm.READY_SECONDS)


def _llama(entry: ModelEntry, request: ServeRequest, settings: Settings) -> EngineSpec:
    llama.check_installed()
    key = new_key()
    model = Path(entry.where)
    context, slots = llama.context_and_slots(model, request.context, psutil.virtual_memory().available)
    command = llama.command(model, request, name=entry.name, context=context, slots=slots)
    environment, ready = llama.environment(key), llama.READY_SECONDS
    return _spec("llama.cpp", command, environment, entry, request, key, settings, ready, context)


def _spec(
    engine: str,
    command: tuple[str, ...],
    environment: dict[str, str],
    entry: ModelEntry,
    request: ServeRequest,
    key: str,
    settings: Settings,
    ready_seconds: float,
    context: int = 0,
) -> EngineSpec:
    return EngineSpec(
        engine=engine,
        command=command,
        environment=environment,
        host=request.host,
        port=request.port,
        key=key,
        model=entry.name,
        source=entry.where,
        log=folder(settings) / f"{engine}.log",
        ready_seconds=ready_seconds,
        context=context,
    )
