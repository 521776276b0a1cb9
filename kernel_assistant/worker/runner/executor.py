"""Executes launch plans: a C function per launch on the CPU, `cuLaunchKernel` or a library call on CUDA.

Standard library only, but for plans with residual calls, which need torch.

What was timed is what ships: the runner uses this file, and applied packages carry a copy of it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from . import plan as plans
from .cuda_driver import Driver
from .kernel_graph import Kernel, KernelGraph, capturing, graph_of
from .launching import Entry, Frame, Grapher, Prepared, Words, kernel_entry
from .libraries import Chosen, Libraries

#: Name of the buffer that library launches share, behind those of the plan.
WORKSPACE = "(workspace)"
#: Which launches of a plan.
EVERY, KERNELS, LIBRARIES, RESIDUAL = "every", "kernels", "libraries", "residual"


class CpuModule:
    """A shared object with `void SYM(const SYM_args*)` launchers."""

    device = "cpu"

    def __init__(self, path: str) -> None:
        provide_openmp()
        self._library = ctypes.CDLL(path)

    def prepare(self, launch: plans.BoundLaunch) -> Prepared:
        try:
            function = getattr(self._library, launch.symbol)
        except AttributeError as error:
            raise plans.PlanError(f"the binary has no symbol {launch.symbol}") from error
        function.restype = None
        return Prepared(launch.words, launch.slots, lambda words, stream: (function, (ctypes.byref(words),)))

    def fail(self, status: int) -> None:
        raise plans.PlanError(f"a launcher returned {status}")

    def choose(self, launch: plans.BoundLibraryCall) -> Chosen:
        raise plans.PlanError(f"{launch.library} is for CUDA")


class CudaModule:
    """A cubin with `__global__ void SYM(SYM_args)` kernels, and the libraries that a plan may call."""

    def __init__(self, driver: Driver, image: bytes, libraries: Libraries | None = None) -> None:
        self.driver = driver
        self.device = f"cuda:{driver.device.value}"
        self._libraries = libraries or Libraries(driver, {}, {})
        self._module = driver.load_module(image)

    def choose(self, launch: plans.BoundLibraryCall) -> Chosen:
        """The algorithm of a library launch. Raises LibraryError or CudaError."""
        return self._libraries.bind(launch)

    def prepare(self, launch: plans.BoundLaunch) -> Prepared:
        function = self.driver.function(self._module, launch.symbol)
        if launch.shared:
            # Beyond 48 KiB, of which the kernel's own static shared memory takes a part.
            self.driver.allow_shared(function, launch.shared)
        self.driver.allow_large_clusters(function)
        geometry = (*launch.grid, *launch.block, launch.shared)
        call = self.driver.lib.cuLaunchKernelEx

        def enter(words: Words, stream: int) -> Entry | None:
            return None if 0 in launch.grid else kernel_entry(call, function, geometry, words, stream)

        kernel = None if 0 in launch.grid else Kernel(function, geometry)
        return Prepared(launch.words, launch.slots, enter, kernel)

    def graph(self, kernels: Sequence[tuple[Kernel, Words]]) -> KernelGraph | None:
        """One launch for all of them, None where the driver makes none."""
        return graph_of(self.driver, kernels)

    def capturing(self, stream: int) -> bool:
        return capturing(self.driver, stream)

    def fail(self, status: int) -> None:
        """Raises CudaError for the status of a launch."""
        self.driver.fail("cuLaunchKernelEx", status)

    def close(self) -> None:
        self.driver.unload_module(self._module)


class Residual(Protocol):
    """A residual call. Reads and gives `tensors`, and the addresses of what it gives in `pointers`."""

    def run(self, tensors: list[Any], pointers: Any) -> None: ...


_KINDS: dict[type, str] = {
    plans.BoundLaunch: KERNELS,
    plans.BoundLibraryCall: LIBRARIES,
    plans.BoundResidualCall: RESIDUAL,
}


class BoundPlan:
    """A plan with its sizes known. `names` is the order in which `run` takes pointers.

    With library launches, WORKSPACE of `workspace_bytes` (0 perhaps) is the last name, and `algorithms` says what was
    chosen for each. Scratch that a residual call gives has no bytes of its own.
    """

    def __init__(self, plan: dict[str, Any], dims: dict[str, int], module: CpuModule | CudaModule, which: str) -> None:
        specs = plans.buffers(plan)
        self.names = [spec["name"] for spec in specs]
        self.device = module.device
        self.scratch_bytes = {spec["name"]: plans.byte_size(spec, dims) for spec in plan.get("scratch", ())}
        self.output_shapes = [plans.shape(spec, dims) for spec in plan["outputs"]]
        bound = plans.bind_launches(plan, dims, which)
        calls = [launch for launch in bound if isinstance(launch, plans.BoundResidualCall)]
        outputs = range(len(plan["inputs"]), len(plan["inputs"]) + len(plan["outputs"]))
        written = {value.buffer for call in calls for value in call.results}
        #: Buffers that residual calls give, outputs that they write in the shape that is returned, and, with spec and
        #: sizes, all that they need as tensors.
        self.given = frozenset(written - set(outputs))
        self.returned = frozenset(
            value.buffer
            for value in (value for call in calls for value in call.results)
            if value.buffer in outputs and (value.shape, value.strides) == _sizes(specs[value.buffer], dims)[:2]
        )
        used = written.union(value.buffer for call in calls for value in call.reads) - self.given
        self.tensors_of = {index: (specs[index], _sizes(specs[index], dims)) for index in sorted(used)}
        self.scratch_bytes |= {self.names[index]: 0 for index in self.given}
        self.workspace_bytes = 0
        self.algorithms: dict[str, str] = {}
        steps = [self._prepared(launch, module) for launch in bound]
        self._launches = [step for step in steps if isinstance(step, Prepared)]
        self._calls = [step for step in steps if not isinstance(step, Prepared)]
        self._kinds = [_KINDS[type(launch)] for launch in bound]
        self._fail = module.fail
        self._grapher: Grapher | None = module if isinstance(module, CudaModule) and not self._calls else None
        # Taken and given back by one caller at a time; `pop` and `append` are atomic.
        self._frames: list[Frame] = []
        if LIBRARIES in self._kinds:
            self.names.append(WORKSPACE)

    def _prepared(self, launch: plans.Bound, module: CpuModule | CudaModule) -> Prepared | Residual:
        if isinstance(launch, plans.BoundLaunch):
            return module.prepare(launch)
        if isinstance(launch, plans.BoundResidualCall):
            from .pytorch.residual import ResidualCall

            return ResidualCall(launch, self.device, self.given)
        chosen = module.choose(launch)
        self.workspace_bytes = max(self.workspace_bytes, chosen.workspace)
        self.algorithms[launch.symbol] = chosen.name
        count = len(launch.fields)
        slots = [*launch.slots, (count, len(self.names))]
        return Prepared([0] * (count + 1), slots, lambda words, stream: (chosen.run, (words, stream)))

    def run(self, pointers: Sequence[int], stream: int = 0, tensors: list[Any] | None = None) -> None:
        """One call. Re-entrant: no two callers have the same argument structs.

        `tensors` are those of `tensors_of` by their index, where the caller has them. It is changed: an output in
        `returned` may be left out, and is there afterwards.
        """
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = Frame(self._launches, stream, self._grapher)
        if frame.stream != stream:
            frame.move(stream)
        if self._calls:
            self._step_through(frame, *self._placed(pointers, tensors), EVERY)
        else:
            frame.fill(pointers)
            frame.launch(self._fail)
        self._frames.append(frame)

    def freeze(self, pointers: Sequence[int], which: str = EVERY, first: int | None = None) -> Callable[[int], None]:
        """A call with its pointers fixed, on the stream it is given: nothing but the launches is left to do.

        `which` leaves out all but one kind of launches, `first` those behind so many; what these read of residual calls
        one call of all has left.
        """
        if self._calls:
            return self._freeze_around_calls(pointers, which, first)
        steps = [step for step, kind in zip(self._launches, self._kinds, strict=True) if which in (EVERY, kind)]
        steps = steps[:first]
        frame = Frame(steps, 0, self._grapher)
        frame.fill(pointers)

        def run(stream: int) -> None:
            if frame.stream != stream:
                frame.move(stream)
            frame.launch(self._fail)

        return run

    def _freeze_around_calls(self, pointers: Sequence[int], which: str, first: int | None) -> Callable[[int], None]:
        frame, (places, tensors) = Frame(self._launches, 0), self._placed(pointers, None)
        if which != EVERY or first is not None:
            self._step_through(frame, places, tensors, EVERY)
            return lambda stream: self._step_through(frame, places, tensors, which, first)

        def run(stream: int) -> None:
            if frame.stream != stream:
                frame.move(stream)
            self._step_through(frame, places, tensors, EVERY)
            # As PyTorch would: what is between two nodes goes when it has been read.
            for index in self.given:
                tensors[index] = None

        return run

    def _placed(self, pointers: Sequence[int], tensors: list[Any] | None) -> tuple[list[int], list[Any]]:
        """Pointers and tensors that residual calls may change."""
        if tensors is None:
            from .pytorch.residual import tensor_at

            tensors = [None] * len(self.names)
            for index, (spec, sizes) in self.tensors_of.items():
                tensors[index] = tensor_at(pointers[index], spec, sizes, self.device)
        return list(pointers), tensors

    def _step_through(
        self, frame: Frame, pointers: list[int], tensors: list[Any], which: str, first: int | None = None
    ) -> None:
        """Launches and calls in order: a pointer is known when the call before has given it."""
        launches = iter(range(len(self._launches)))
        calls = iter(self._calls)
        for kind in self._kinds[:first]:
            if kind == RESIDUAL:
                call = next(calls)
                if which in (EVERY, RESIDUAL):
                    call.run(tensors, pointers)
                continue
            number = next(launches)
            if which in (EVERY, kind):
                frame.launch_one(number, pointers, self._fail)

    @property
    def kinds(self) -> frozenset[str]:
        """Those of KERNELS, LIBRARIES and RESIDUAL that the plan has."""
        return frozenset(self._kinds)


def _sizes(spec: dict[str, Any], dims: dict[str, int]) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    return plans.shape(spec, dims), plans.strides(spec, dims), plans.byte_size(spec, dims)


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
