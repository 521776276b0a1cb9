"""Executes launch plans: a C function per launch on the CPU, `cuLaunchKernel` on CUDA. Standard library only.

What was timed is what ships: the runner uses this file, and applied packages carry a copy of it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from ctypes import c_uint64, c_void_p
from typing import Any

from . import plan as plans
from .cuda_driver import Driver

Launcher = Callable[[Sequence[int], int], None]


class CpuModule:
    """A shared object with `void SYM(const SYM_args*)` launchers."""

    def __init__(self, path: str) -> None:
        provide_openmp()
        self._library = ctypes.CDLL(path)

    def prepare(self, launch: plans.BoundLaunch) -> Callable[[ctypes.Array[c_uint64], int], None]:
        try:
            function = getattr(self._library, launch.symbol)
        except AttributeError as error:
            raise plans.PlanError(f"the binary has no symbol {launch.symbol}") from error
        function.argtypes, function.restype = [c_void_p], None

        def call(words: ctypes.Array[c_uint64], stream: int) -> None:
            function(ctypes.addressof(words))

        return call


class CudaModule:
    """A cubin with `__global__ void SYM(SYM_args)` kernels."""

    def __init__(self, driver: Driver, image: bytes) -> None:
        self.driver = driver
        self._module = driver.load_module(image)

    def prepare(self, launch: plans.BoundLaunch) -> Callable[[ctypes.Array[c_uint64], int], None]:
        function = self.driver.function(self._module, launch.symbol)
        if launch.shared > 48 << 10:
            self.driver.allow_shared(function, launch.shared)
        self.driver.allow_large_clusters(function)
        geometry = (*launch.grid, *launch.block, launch.shared)
        run, fail = self.driver.lib.cuLaunchKernel, self.driver.fail
        if 0 in launch.grid:
            return lambda words, stream: None

        def call(words: ctypes.Array[c_uint64], stream: int) -> None:
            parameters = (c_void_p * 1)(ctypes.addressof(words))
            code = run(function, *geometry, stream, parameters, None)
            if code:
                fail("cuLaunchKernel", code)

        return call

    def close(self) -> None:
        self.driver.unload_module(self._module)


class BoundPlan:
    """A plan with its sizes known. `names` is the order in which `run` takes pointers."""

    def __init__(self, plan: dict[str, Any], dims: dict[str, int], module: CpuModule | CudaModule, which: str) -> None:
        specs = plans.buffers(plan)
        self.names = [spec["name"] for spec in specs]
        self.scratch_bytes = {spec["name"]: plans.byte_size(spec, dims) for spec in plan.get("scratch", ())}
        self.output_shapes = [plans.shape(spec, dims) for spec in plan["outputs"]]
        self._launches = [
            (module.prepare(launch), c_uint64 * max(len(launch.words), 1), launch.words, launch.slots)
            for launch in plans.bind_launches(plan, dims, which)
        ]

    def run(self, pointers: Sequence[int], stream: int = 0) -> None:
        """One call. Re-entrant: argument structs are made anew, so threads do not share them."""
        for call, array, words, slots in self._launches:
            packed = array(*words)
            for position, index in slots:
                packed[position] = pointers[index]
            call(packed, stream)

    def freeze(self, pointers: Sequence[int]) -> Callable[[int], None]:
        """A call with its pointers fixed: nothing but the launches themselves is left to do."""
        frozen = []
        for call, array, words, slots in self._launches:
            packed = array(*words)
            for position, index in slots:
                packed[position] = pointers[index]
            frozen.append((call, packed))
        if len(frozen) == 1:
            only, arguments = frozen[0]
            return lambda stream: only(arguments, stream)

        def run(stream: int) -> None:
            for call, packed in frozen:
                call(packed, stream)

        return run


def bind(
    plan: dict[str, Any], dims: dict[str, int], module: CpuModule | CudaModule, which: str = "launches"
) -> BoundPlan:
    """Bind a plan to sizes and a loaded binary. Raises PlanError or CudaError."""
    return BoundPlan(plan, dims, module, which)


def provide_openmp() -> None:
    """Make an OpenMP runtime visible to objects that were linked without one.

    A process that has torch has mapped one already: using the same gives one thread pool and respects
    `torch.set_num_threads`. Elsewhere the system's libgomp is loaded.
    """
    if _openmp:
        return
    for path in [*_mapped_openmp(), "libgomp.so.1", "libomp.so.5", "libiomp5.so"]:
        try:
            _openmp.append(ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL))
            return
        except OSError:
            continue
    raise plans.PlanError("no OpenMP runtime found: install libgomp1")


_openmp: list[ctypes.CDLL] = []


def _mapped_openmp() -> list[str]:
    if not os.path.exists("/proc/self/maps"):
        return []
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if line.count("/")}
    return sorted(path for path in paths if os.path.basename(path).startswith(("libgomp", "libomp", "libiomp")))
