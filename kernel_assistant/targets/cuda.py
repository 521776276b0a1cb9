"""Facts of NVIDIA GPUs and the flags of nvcc."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Sequence
from typing import Any

from kernel_assistant.errors import MissingError
from kernel_assistant.targets.base import DeviceFacts

_CODE = ("-O3", "-std=c++17")
FLAGS = (*_CODE, "-cubin", "--resource-usage")
#: The same for NVRTC, which optimises by default.
NVRTC_FLAGS = ("-std=c++17", "--ptxas-options=-v")
#: Flags that give the same code as PTX, for reading.
PTX_FLAGS = (*_CODE, "-ptx")

#: Architectures that applied packages carry binaries for, besides the one that was measured.
SHIPPED = ("sm_80", "sm_89", "sm_90")

#: Copy bandwidth (bytes/s) and fp32 rate (flop/s) by the vendor's datasheets, by a part of the device's name.
DATASHEETS = {
    "H200": (4.8e12, 67e12),
    "H100 PCIe": (2.0e12, 51e12),
    "H100": (3.35e12, 67e12),
    "A100": (2.04e12, 19.5e12),
    "L40S": (0.864e12, 91.6e12),
    "RTX 4090": (1.01e12, 82.6e12),
}


def compiler() -> str:
    """Path of nvcc: CUDA_HOME, PATH, /usr/local/cuda. MissingError if there is none."""
    homes = [os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""), "/usr/local/cuda"]
    candidates = [os.path.join(home, "bin", "nvcc") for home in homes if home]
    for path in [*candidates, shutil.which("nvcc") or "", *sorted(glob.glob("/usr/local/cuda-*/bin/nvcc"))]:
        if path and os.access(path, os.X_OK):
            return path
    raise MissingError("nvcc was not found", "install the CUDA toolkit, or set CUDA_HOME to it")


def gpus() -> list[DeviceFacts]:
    """The GPUs that CUDA sees, numbered in the order of the bus; an empty list where there is no driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        return [_facts(pynvml, index) for index in range(len(_visible(pynvml)))]
    finally:
        pynvml.nvmlShutdown()


def identities() -> list[str]:
    """UUIDs of the GPUs that CUDA sees, in its order: the same in every process and container of a machine, and
    different on all other machines. An empty list where there is no driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        return [str(pynvml.nvmlDeviceGetUUID(_handle(pynvml, index))) for index in range(len(_visible(pynvml)))]
    finally:
        pynvml.nvmlShutdown()


def idle_gpu(devices: list[DeviceFacts]) -> DeviceFacts:
    """The device with the least load, then with the most free memory."""
    return min(devices, key=lambda facts: (*load(facts.index), facts.index))


def load(index: int) -> tuple[int, int]:
    """(utilisation in percent, bytes in use by others) of one GPU; zeros where the driver does not say."""
    import pynvml

    try:
        pynvml.nvmlInit()
        handle = _handle(pynvml, index)
        busy = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu
        used = pynvml.nvmlDeviceGetMemoryInfo(handle).used
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return 0, 0
    return int(busy), int(used)


def other_processes(index: int) -> int:
    """Processes that compute on one GPU and are not of our own process tree; 0 where the driver does not say."""
    import psutil
    import pynvml

    try:
        pynvml.nvmlInit()
        handle = _handle(pynvml, index)
        pids = {process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)}
        pynvml.nvmlShutdown()
    # The second means that the driver is older than the binding; older bindings do not have this exception.
    except (pynvml.NVMLError, getattr(pynvml, "NVMLLibraryMismatchError", pynvml.NVMLError)):
        return 0
    ours = {process.pid for process in psutil.Process().children(recursive=True)} | {os.getpid()}
    return len([pid for pid in pids - ours if psutil.pid_exists(pid)])


def shared_bytes_per_block(arch: str) -> int:
    """Most shared memory a block can have, in bytes (CUDA C++ Programming Guide, table of compute capabilities)."""
    number = int(arch.removeprefix("sm_").rstrip("af"))
    if number in (80, 87):
        return 163 << 10
    return 227 << 10 if 90 <= number < 120 else 99 << 10


def visible(words: str, uuids: Sequence[str]) -> list[int]:
    """Indices of the GPUs with these UUIDs that CUDA sees, in its order, when CUDA_VISIBLE_DEVICES is `words`.

    Entries are numbers or prefixes of UUIDs; like CUDA, it stops at the first invalid one. For parts of a GPU (MIG) it
    returns all GPUs.
    """
    if "MIG-" in words:
        return list(range(len(uuids)))
    indices: list[int] = []
    for word in (word.strip() for word in words.split(",")):
        meant = [int(word)] if word.isdigit() else [n for n, one in enumerate(uuids) if word and one.startswith(word)]
        if len(meant) != 1 or meant[0] >= len(uuids) or meant[0] in indices:
            break
        indices += meant
    return indices


def _visible(nvml: Any) -> list[int]:
    """NVML's number of each GPU that CUDA sees."""
    count = nvml.nvmlDeviceGetCount()
    words = os.environ.get("CUDA_VISIBLE_DEVICES")
    if words is None:
        return list(range(count))
    return visible(words, [nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(index)) for index in range(count)])


def _handle(nvml: Any, index: int) -> Any:
    """NVML's handle of the GPU with CUDA's number `index`."""
    return nvml.nvmlDeviceGetHandleByIndex(_visible(nvml)[index])


def _facts(nvml: Any, index: int) -> DeviceFacts:
    handle = _handle(nvml, index)
    name = nvml.nvmlDeviceGetName(handle)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    bandwidth, rate = next((value for key, value in DATASHEETS.items() if key in name), (0.0, 0.0))
    return DeviceFacts(
        target="cuda",
        name=name,
        arch=f"sm_{major}{minor}",
        index=index,
        cores=_multiprocessors(nvml, handle),
        threads=os.cpu_count() or 1,
        cache_bytes=_cache_bytes(name),
        memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        shared_bytes_per_block=shared_bytes_per_block(f"sm_{major}{minor}"),
        bandwidth_datasheet=bandwidth,
        flops_fp32_datasheet=rate,
        driver=nvml.nvmlSystemGetDriverVersion(),
    )


def _multiprocessors(nvml: Any, handle: Any) -> int:
    try:
        attributes = nvml.nvmlDeviceGetNumGpuCores(handle)
        return int(attributes) // 128
    except nvml.NVMLError:
        return 1


def _cache_bytes(name: str) -> int:
    sizes = {"H200": 60, "H100": 50, "A100": 40, "L40S": 96, "RTX 4090": 72}
    return next((size for key, size in sizes.items() if key in name), 64) << 20
