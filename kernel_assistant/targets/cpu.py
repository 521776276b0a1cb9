"""Facts of the CPU and the flags of its compiler."""

from __future__ import annotations

import os
import platform
import re
import shutil
from functools import lru_cache
from pathlib import Path

from kernel_assistant.errors import MissingError
from kernel_assistant.targets.base import DeviceFacts

#: No -ffast-math: it would let the compiler drop NaN, signed zeros and infinities. Without -fno-tree-pre, gcc 12 splits
#: the loop over log1p(exp(x)) (softplus, mish, log_sigmoid) into branches that it cannot vectorise: 8 times slower.
FLAGS = (
    *("-O3", "-march=native", "-fopenmp", "-std=c++17", "-fPIC", "-Wall"),
    *("-fno-math-errno", "-fno-trapping-math", "-fno-tree-pre"),
)
#: glibc on x86-64 has sine, cosine and power over vectors in a library of its own, with errors below 4 units in the
#: last place; every glibc that runs PyTorch has it. ka_cpu.h declares them.
_VECTOR_LIBRARY = ("-DKA_LIBMVEC", "-Wl,--push-state,--no-as-needed,-lmvec,--pop-state")
_HAS_VECTOR_LIBRARY = platform.machine() in ("x86_64", "AMD64") and platform.libc_ver()[0] == "glibc"
#: Linked by hand without libgomp: the loading process provides the OpenMP runtime (see runner/executor.py).
LINK_FLAGS = ("-shared", "-Wl,-z,now,-z,relro", *(_VECTOR_LIBRARY if _HAS_VECTOR_LIBRARY else ()))
#: Flags that give the same code as assembly, for reading; nothing is linked.
ASSEMBLY_FLAGS = (*FLAGS, *(one for one in LINK_FLAGS if one.startswith("-D")), "-S")

_LEVELS = (("avx512", ("avx512f", "avx512bw", "avx512vl", "avx512dq")), ("avx2", ("avx2", "fma")))


def facts() -> DeviceFacts:
    """Returns the facts of this machine's CPU, as Linux describes it."""
    info = _cpuinfo()
    threads = len(os.sched_getaffinity(0))
    return DeviceFacts(
        target="cpu",
        name=info.get("model name", platform.processor() or platform.machine()),
        arch=architecture(),
        cores=threads,
        threads=threads,
        cache_bytes=_last_level_cache(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )


def architecture() -> str:
    """Returns the level of the CPU's instruction set: `x86-64-avx512`, `x86-64-avx2`, `x86-64`, or what
    `platform.machine` returns for other processors."""
    machine = platform.machine()
    if machine not in ("x86_64", "AMD64"):
        return machine
    flags = set(_cpuinfo().get("flags", "").split())
    for level, needed in _LEVELS:
        if flags.issuperset(needed):
            return f"x86-64-{level}"
    return "x86-64"


def compiler() -> str:
    """Returns the path of the C++ compiler: CXX, g++ or clang++. Raises MissingError if there is none."""
    for name in (os.environ.get("CXX", ""), "g++", "clang++"):
        path = shutil.which(name) if name else None
        if path:
            return path
    raise MissingError("no C++ compiler found (looked for $CXX, g++, clang++)", "install one: apt-get install g++")


@lru_cache(maxsize=1)
def _cpuinfo() -> dict[str, str]:
    fields: dict[str, str] = {}
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return fields
    for line in text.split("\n\n", 1)[0].splitlines():
        key, _, value = line.partition(":")
        fields[key.strip()] = value.strip()
    return fields


def _last_level_cache() -> int:
    sizes = [0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        match = re.fullmatch(r"(\d+)([KM]?)", path.read_text(encoding="ascii").strip())
        if match:
            sizes.append(int(match[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20}[match[2]])
    return max(sizes) or 32 << 20
