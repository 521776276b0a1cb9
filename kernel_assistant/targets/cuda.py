"""Facts of NVIDIA GPUs and the flags of nvcc."""

from __future__ import annotations

import glob
import os
import shutil
from typing import Any

from kernel_assistant.errors import MissingError
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.targets.nvml import handles, opened

_CODE = ("-O3", "-std=c++17")
FLAGS = (*_CODE, "-cubin", "--resource-usage")
#: The same flags for NVRTC, which optimises by default.
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

#: Compute capabilities with 64 cores in a multiprocessor (P100, V100, Turing, A100); the others have 128.
_FEW_CORES = ((6, 0), (7, 0), (7, 2), (7, 5), (8, 0))


def compiler() -> str:
    """Returns the path of nvcc, from CUDA_HOME, CUDA_PATH, /usr/local/cuda, PATH or /usr/local/cuda-*. Raises
    MissingError if there is none."""
    homes = [os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""), "/usr/local/cuda"]
    candidates = [os.path.join(home, "bin", "nvcc") for home in homes if home]
    for path in [*candidates, shutil.which("nvcc") or "", *sorted(glob.glob("/usr/local/cuda-*/bin/nvcc"))]:
        if path and os.access(path, os.X_OK):
            return path
    raise MissingError("nvcc was not found", "install the CUDA toolkit, or set CUDA_HOME to it")


def gpus() -> list[DeviceFacts]:
    """Returns the GPUs that CUDA sees, in the order of `nvml.handles`; an empty list where there is no driver."""
    with opened() as nvml:
        return [_facts(nvml, index, handle) for index, handle in enumerate(handles(nvml))]


def identities() -> list[str]:
    """Returns the UUIDs of the GPUs that CUDA sees, in CUDA's order; an empty list where there is no driver. A UUID is
    the same in every process and container of a machine, and different on all other machines."""
    with opened() as nvml:
        return [str(nvml.nvmlDeviceGetUUID(handle)) for handle in handles(nvml)]


def idle_gpu(devices: list[DeviceFacts]) -> DeviceFacts:
    """Returns the device with the least utilisation; if several have the same, the one of them with the least memory in
    use."""
    return min(devices, key=lambda facts: (*load(facts.index), facts.index))


def load(index: int) -> tuple[int, int]:
    """Returns (utilisation in percent, bytes of memory in use) of GPU number `index`; zeros if the driver does not
    say."""
    with opened() as nvml:
        if nvml is None:
            return 0, 0
        try:
            handle = handles(nvml)[index]
            used = int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
            return int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu), used
        except nvml.NVMLError:
            return 0, 0


def other_processes(index: int) -> int:
    """Returns the number of processes that compute on GPU number `index` and are not of our own process tree; 0 if the
    driver does not say."""
    import psutil

    with opened() as nvml:
        if nvml is None:
            return 0
        try:
            pids = {one.pid for one in nvml.nvmlDeviceGetComputeRunningProcesses(handles(nvml)[index])}
        # The second means that the driver is older than the binding; older bindings do not have this exception.
        except (nvml.NVMLError, getattr(nvml, "NVMLLibraryMismatchError", nvml.NVMLError)):
            return 0
    ours = {process.pid for process in psutil.Process().children(recursive=True)} | {os.getpid()}
    return len([pid for pid in pids - ours if psutil.pid_exists(pid)])


def shared_bytes_per_block(arch: str) -> int:
    """Returns the most shared memory that a block can have, in bytes (CUDA C++ Programming Guide, table of compute
    capabilities)."""
    number = int(arch.removeprefix("sm_").rstrip("af"))
    if number in (80, 87):
        return 163 << 10
    return 227 << 10 if 90 <= number < 120 else 99 << 10


def _facts(nvml: Any, index: int, handle: Any) -> DeviceFacts:
    name = nvml.nvmlDeviceGetName(handle)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    bandwidth, rate = next((value for key, value in DATASHEETS.items() if key in name), (0.0, 0.0))
    return DeviceFacts(
        target="cuda",
        name=name,
        arch=f"sm_{major}{minor}",
        index=index,
        cores=_multiprocessors(nvml, handle, (major, minor)),
        threads=os.cpu_count() or 1,
        cache_bytes=_cache_bytes(name),
        memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        shared_bytes_per_block=shared_bytes_per_block(f"sm_{major}{minor}"),
        bandwidth_datasheet=bandwidth,
        flops_fp32_datasheet=rate,
        driver=nvml.nvmlSystemGetDriverVersion(),
    )


def _multiprocessors(nvml: Any, handle: Any, capability: tuple[int, int]) -> int:
    try:
        return int(nvml.nvmlDeviceGetNumGpuCores(handle)) // (64 if capability in _FEW_CORES else 128)
    except nvml.NVMLError:
        return 1


def _cache_bytes(name: str) -> int:
    sizes = {"H200": 60, "H100": 50, "A100": 40, "L40S": 96, "RTX 4090": 72}
    return next((size for key, size in sizes.items() if key in name), 64) << 20
