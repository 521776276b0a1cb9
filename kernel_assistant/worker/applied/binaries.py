"""Picks and loads the prebuilt binary (a cubin or a shared object) for a device. Never compiles."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import platform
import re
import tempfile

import torch

from ..runner.cuda_driver import Driver
from ..runner.executor import CpuModule, CudaModule
from ..runner.libraries import Libraries, find_libraries
from ..runner.locks import ForkSafeLock
from ..runner.operations.kept_algorithms import APPLIED, KeptAlgorithms, kept_file
from .parts import Parts

#: Processor features that each instruction set level needs (x86-64 psABI, levels 3 and 4).
_AVX2 = {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}
LEVELS: dict[str, set[str]] = {
    "x86-64": set(),
    "x86-64-avx2": _AVX2,
    "x86-64-avx512": _AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
}

#: Name of the file at the top of a package that lists the SHA-256 of each file.
MANIFEST = "manifest.json"

_lock = ForkSafeLock()
_drivers: dict[int, Driver] = {}
_libraries: dict[int, Libraries] = {}
_opened: dict[str, tuple[int, int]] = {}


class NoBinary(OSError):
    """No binary of the package runs on the device."""


class Binaries:
    """The binaries `kernels.ARCH[.TAG].so` or `kernels.ARCH.cubin` of one class, each loaded once per device. `size` is
    the prefix of their names, for instances of one size (see parts.py); "" means the main size.

    `cpu_flags` are the processor features that a shared object needs beyond its instruction set level (LEVELS).
    `binary_flags` maps the names of files that were built on other machines to the features that these files need
    instead."""

    def __init__(
        self,
        parts: Parts,
        size: str,
        target: str,
        cpu_flags: list[str],
        binary_flags: dict[str, list[str]] | None = None,
    ) -> None:
        self.parts, self.size = parts, size
        self.cpu_flags = cpu_flags
        self.binary_flags = binary_flags or {}
        self._suffix = ".cubin" if target == "cuda" else ".so"
        self._modules: dict[int, CpuModule | CudaModule] = {}

    def module(self, device: torch.device) -> CpuModule | CudaModule:
        """Returns the loaded binary for `device`. Raises OSError if no binary runs on the device, or if the binary
        cannot be loaded."""
        index = device.index if device.index is not None else 0
        with _lock:
            if index not in self._modules:
                self._modules[index] = self._load(device)
            return self._modules[index]

    def is_loaded(self, device: torch.device) -> bool:
        return (device.index or 0) in self._modules

    def _load(self, device: torch.device) -> CpuModule | CudaModule:
        name = self.size + self.pick(device)
        require_whole(self.parts.package, self.parts.holder(name))
        if device.type == "cpu":
            path = self.parts.path(name)
            return CpuModule(_path_of_its_own(path) if path else _in_memory(self.parts.read(name)))
        return CudaModule(driver(device.index), self.parts.read(name), libraries(device.index))

    def pick(self, device: torch.device) -> str:
        """Returns the file name of the best binary for `device`, without the prefix `size_…/`. Raises NoBinary if none
        runs on it."""
        every = [name[len(self.size) :] for name in self.parts.names() if name.startswith(self.size)]
        names = [name for name in every if name.startswith("kernels.") and name.endswith(self._suffix)]
        fits = [name for name in names if self._runs(name, device)]
        if not fits:
            archs = ", ".join(dict.fromkeys(map(_arch, names)))
            raise NoBinary(f"no binary for {describe(device)}, only for {archs or 'nothing'}")
        return max(fits, key=lambda name: _rank(_arch(name)))

    def _runs(self, name: str, device: torch.device) -> bool:
        arch = _arch(name)
        if device.type == "cuda":
            return _cubin_runs(arch, torch.cuda.get_device_capability(device))
        if arch not in LEVELS:
            return arch == platform.machine()
        flags = self.binary_flags.get(name, self.cpu_flags)
        return platform.machine() in ("x86_64", "AMD64") and LEVELS[arch].union(flags) <= processor_flags()


def require_whole(package: str, path: str) -> None:
    """Raises OSError if the file at `path`, which contains binaries, differs from its SHA-256 in the manifest of the
    folder `package`. This is checked because a file with a flipped bit may load without an error. A package without a
    manifest, and a file that the manifest does not list, are not checked."""
    if not os.path.isfile(os.path.join(package, MANIFEST)):
        return
    try:
        with open(os.path.join(package, MANIFEST), encoding="utf-8") as file:
            known = json.load(file)["files"].get(os.path.relpath(path, package).replace(os.sep, "/"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise OSError(f"{MANIFEST} of {os.path.basename(package)} cannot be read") from error
    with open(path, "rb") as binary:
        digest = hashlib.sha256(binary.read()).hexdigest()
    if known is not None and digest != known:
        raise OSError(f"{os.path.basename(path)} is not as it was written")


def _path_of_its_own(path: str) -> str:
    """Returns a path from which the dynamic linker loads the present content of the file at `path`. This is `path`
    itself, unless the file was replaced after this process had loaded it: the linker would then return the old library,
    so the result is a path through a new file descriptor. The descriptor stays open, so that no other file gets the
    same path."""
    status = os.stat(path)
    identity = (status.st_ino, status.st_mtime_ns)
    if _opened.setdefault(path, identity) == identity:
        return path
    return f"/proc/self/fd/{os.open(path, os.O_RDONLY | os.O_CLOEXEC)}"


def _in_memory(image: bytes) -> str:
    """Writes a shared object from an archive to an anonymous file in memory, or else to a temporary file, and returns
    its path. The descriptor stays open, so that no other file gets the same path."""
    try:
        descriptor = os.memfd_create("kernels")
        path = f"/proc/self/fd/{descriptor}"
    except (OSError, AttributeError):
        descriptor, path = tempfile.mkstemp(suffix=".so")
        atexit.register(os.unlink, path)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(image)
    return path


def driver(index: int) -> Driver:
    """Returns the CUDA driver for GPU number `index`. Makes the primary context of the GPU, which torch uses too,
    current on this thread.

    The GPU must already be torch's current device; otherwise this call changes torch's current device."""
    if index not in _drivers:
        _drivers[index] = Driver(index)
    _drivers[index].make_current()
    return _drivers[index]


def libraries(index: int) -> Libraries:
    """Returns cuBLASLt and cuDNN for GPU number `index`: PyTorch's own copies, which are opened when a launch first
    needs them."""
    if index not in _libraries:
        kept = KeptAlgorithms(path=kept_file(), prefix=APPLIED)
        _libraries[index] = Libraries(driver(index), find_libraries(), {}, kept)
    return _libraries[index]


def describe(device: torch.device) -> str:
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        return f"sm_{major}{minor} ({torch.cuda.get_device_name(device)})"
    return f"this {platform.machine()} processor"


def processor_flags() -> set[str]:
    """Returns the feature flags of the first processor as Linux names them, such as "avx2"; empty if they cannot be
    read."""
    if not _flags:
        try:
            with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
                flags_line = next((line for line in lines if line.startswith(("flags", "Features"))), ":")
        except OSError:
            flags_line = ":"
        _flags.append(set(flags_line.partition(":")[2].split()))
    return _flags[0]


def instruction_flags() -> list[str]:
    """Returns those of `processor_flags()` that name instruction sets, which `-march=native` lets a compiler use;
    sorted."""
    return sorted(flag for flag in processor_flags() if flag.startswith(_INSTRUCTIONS))


_INSTRUCTIONS: tuple[str, ...] = (
    *("abm", "adx", "amx", "asimd", "avx", "bmi", "f16c", "fma", "gfni", "movbe", "popcnt"),
    *("sha", "sse", "ssse", "sve", "vaes", "vpclmul"),
)
_flags: list[set[str]] = []


def _arch(name: str) -> str:
    """Returns the architecture in the name of a binary's file, such as "sm_90" for "kernels.sm_90.cubin"."""
    return name.split(".")[1]


def _cubin_runs(arch: str, capability: tuple[int, int]) -> bool:
    """Whether a cubin for `arch` runs on a device with compute capability `capability` (major, minor). The device needs
    the same major version, and the same or a higher minor version. A cubin with a suffix ("sm_90a") needs exactly its
    own version."""
    match = re.fullmatch(r"sm_(\d+)(\d)([a-z]?)", arch)
    if match is None:
        return False
    major, minor = int(match[1]), int(match[2])
    return capability == (major, minor) if match[3] else capability[0] == major and capability[1] >= minor


def _rank(arch: str) -> tuple[int, str]:
    return (list(LEVELS).index(arch) if arch in LEVELS else 0, arch)
