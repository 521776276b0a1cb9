"""Runs the launches of a plan: a C function for each launch on the CPU, `cuLaunchKernel` or a library call on CUDA.

Standard library only, except for plans with residual calls, which need torch.

Applied packages carry a copy of this file, so the code that was timed is the code that users run."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from . import plan as plans
from .capture import capturing
from .cuda_driver import Driver
from .kernel_graph import Kernel, KernelGraph, graph_of
from .launching import Entry, GraphMaker, LaunchFrame, PreparedLaunch, Words, kernel_entry
from .libraries import ChosenAlgorithm, Libraries
from .plan_graph import FEWEST_LAUNCHES, PlanGraph

#: Name of the buffer that library launches share, after those of the plan.
WORKSPACE = "(workspace)"
#: Bytes of results of residual calls that the CUDA graphs of a plan keep; more calls are launched one by one.
MOST_KEPT = 4 << 30
#: Kinds of launches of a plan.
EVERY, KERNELS, LIBRARIES, RESIDUAL = "every", "kernels", "libraries", "residual"


class CpuModule:
    """A loaded shared object, with one launcher `void SYM(const SYM_args*)` for each kernel. Loads an OpenMP runtime
    first."""

    device = "cpu"

    def __init__(self, path: str) -> None:
        provide_openmp()
        self._library = ctypes.CDLL(path)

    def prepare(self, launch: plans.BoundLaunch) -> PreparedLaunch:
        try:
            function = getattr(self._library, launch.symbol)
        except AttributeError as error:
            raise plans.PlanError(f"the binary has no symbol {launch.symbol}") from error
        function.restype = None
        return PreparedLaunch(launch.words, launch.slots, lambda words, stream: (function, (ctypes.byref(words),)))

    def fail(self, status: int) -> None:
        raise plans.PlanError(f"a launcher returned {status}")

    def choose(self, launch: plans.BoundLibraryCall) -> ChosenAlgorithm:
        raise plans.PlanError(f"{launch.library} is for CUDA")


class CudaModule:
    """A loaded cubin with kernels `__global__ void SYM(SYM_args)`, and the libraries (cuBLASLt, cuDNN) that a plan may
    call."""

    def __init__(self, driver: Driver, image: bytes, libraries: Libraries | None = None) -> None:
        self.driver = driver
        self.device = f"cuda:{driver.device.value}"
        self._libraries = libraries or Libraries(driver, {}, {})
        self._module = driver.load_module(image)

    def choose(self, launch: plans.BoundLibraryCall) -> ChosenAlgorithm:
        """Returns the algorithm for a library launch. Raises LibraryError or CudaError."""
        return self._libraries.bind(launch)

    def prepare(self, launch: plans.BoundLaunch) -> PreparedLaunch:
        function = self.driver.function(self._module, launch.symbol)
        if launch.shared:
            # The limit of 48 KiB includes the kernel's own static shared memory.
            self.driver.allow_shared(function, launch.shared)
        self.driver.allow_large_clusters(function)
        geometry = (*launch.grid, *launch.block, launch.shared)
        call = self.driver.lib.cuLaunchKernelEx

        def enter(words: Words, stream: int) -> Entry | None:
            return None if 0 in launch.grid else kernel_entry(call, function, geometry, words, stream)

        kernel = None if 0 in launch.grid else Kernel(function, geometry)
        return PreparedLaunch(launch.words, launch.slots, enter, kernel)

    def graph(self, kernels: Sequence[tuple[Kernel, Words]]) -> KernelGraph | None:
        """Returns a CUDA graph that launches all these kernels, each with its argument struct; None if the driver
        cannot make one."""
        return graph_of(self.driver, kernels)

    def capturing(self, stream: int) -> bool:
        return capturing(self.driver, stream)

    def fail(self, status: int) -> None:
        """Raises CudaError for the status, other than 0, that a launch returned."""
        self.driver.fail("cuLaunchKernelEx", status)

    def close(self) -> None:
        self.driver.unload_module(self._module)


class Residual(Protocol):
    """A residual call: a launch that is PyTorch's own operators. `run` reads operands from `tensors`, writes results
    there, and writes the addresses of the results to `pointers`; both have one entry for each buffer of the plan."""

    def run(self, tensors: list[Any], pointers: Any) -> None: ...


_KINDS: dict[type, str] = {
    plans.BoundLaunch: KERNELS,
    plans.BoundLibraryCall: LIBRARIES,
    plans.BoundResidualCall: RESIDUAL,
}


class BoundPlan:
    """A plan whose expressions are evaluated for the sizes `dims`, with its kernels looked up. `which` is the plan's
    list of launches: "launches" or "prepare". `run` takes the addresses of the buffers in the order of `names`.

    With library launches, the last name is WORKSPACE, a buffer of `workspace_bytes` (perhaps 0), and `algorithms` maps
    the symbol of each launch to the algorithm chosen for it. In `scratch_bytes`, a buffer that a residual call creates
    has size 0."""

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
        #: Buffers that residual calls create; outputs that they return in their final shape; and, with spec and sizes,
        #: all buffers that they need as tensors.
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
        self._steps = steps = [self._prepared(launch, module) for launch in bound]
        self._launches = [step for step in steps if isinstance(step, PreparedLaunch)]
        self._calls = [step for step in steps if not isinstance(step, PreparedLaunch)]
        self._kinds = [_KINDS[type(launch)] for launch in bound]
        self._fail = module.fail
        self._grapher: GraphMaker | None = module if isinstance(module, CudaModule) and not self._calls else None
        self._driver = module.driver if isinstance(module, CudaModule) else None
        self._outputs = frozenset(outputs)
        #: Bytes of the results of residual calls, and of those that graphs of this plan keep in the judge.
        self._call_bytes = sum(_bytes(value) for call in calls for value in call.results)
        self._frozen_bytes = 0
        #: The capture space of these graphs.
        self._space: Any = None
        outside = not written & self._outputs and self._driver is not None
        self._calls_stay = bool(calls) and outside and _can_be_held(self._calls)
        # Each frame is used by one caller at a time; `pop` and `append` are atomic.
        self._frames: list[LaunchFrame] = []
        if LIBRARIES in self._kinds:
            self.names.append(WORKSPACE)

    def _prepared(self, launch: plans.Bound, module: CpuModule | CudaModule) -> PreparedLaunch | Residual:
        if isinstance(launch, plans.BoundLaunch):
            return module.prepare(launch)
        if isinstance(launch, plans.BoundResidualCall):
            from .pytorch.residual import PyTorchCall

            return PyTorchCall(launch, self.device, self.given)
        chosen = module.choose(launch)
        self.workspace_bytes = max(self.workspace_bytes, chosen.workspace)
        self.algorithms[launch.symbol] = chosen.name
        count = len(launch.fields)
        slots = [*launch.slots, (count, len(self.names))]
        return PreparedLaunch([0] * (count + 1), slots, lambda words, stream: (chosen.run, (words, stream)))

    def run(self, pointers: Sequence[int], stream: int = 0, tensors: list[Any] | None = None) -> None:
        """Runs one call of the plan on a stream. `pointers` are the addresses of the buffers in the order of `names`.
        Re-entrant: no two callers use the same argument structs.

        `tensors` has a tensor at the index of each buffer in `tensors_of`; if it is None, they are made from
        `pointers`. The list is changed: an output in `returned` may be None before the call, and is set afterwards."""
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = LaunchFrame(self._launches, stream, self._grapher)
        if frame.stream != stream:
            frame.move(stream)
        if self._calls:
            self._step_through(frame, *self._changeable(pointers, tensors), EVERY)
        else:
            frame.fill(pointers)
            frame.launch(self._fail)
        self._frames.append(frame)

    @property
    def wants_lasting_memory(self) -> bool:
        """Whether calls through `held`, which need memory that keeps its address, are faster than `run`: library
        launches and residual calls can then be part of a CUDA graph. Residual calls cannot if an output of the module
        is the result of one, because its address differs at each call."""
        some = LIBRARIES in self._kinds
        if self._calls:
            some = self._calls_stay and self._frozen_bytes + self._call_bytes <= MOST_KEPT
        return some and self._driver is not None and len(self._steps) >= FEWEST_LAUNCHES

    def held(self, patience: int) -> PlanGraph:
        """Returns the CUDA graphs for the calls of one caller on one stream, whose scratch memory and workspace keep
        their addresses. The first `patience` calls are launched one by one, to see which addresses change."""
        return self._graph(self._capture_space(), self._outputs, patience)

    def _capture_space(self) -> Any:
        """Returns a new memory pool and stream for CUDA graphs that run one after another and capture residual calls;
        None if the plan has no residual calls."""
        if not self._calls:
            return None
        from .pytorch.held import CaptureSpace

        assert self._driver is not None
        return CaptureSpace(self._driver.new_stream, self._driver.end_stream)

    def _graph(self, space: Any, changing: frozenset[int] = frozenset(), patience: int = 0) -> PlanGraph:
        assert self._driver is not None
        if not self._calls:
            return PlanGraph(self._driver, self._launches, self._fail, changing, patience)
        from .pytorch.held import HeldCalls

        calls = HeldCalls(self._calls, self.tensors_of, len(self.names), self.device, space)
        held = iter(calls.steps())
        steps = [step if isinstance(step, PreparedLaunch) else next(held) for step in self._steps]
        return PlanGraph(self._driver, steps, self._fail, changing, patience, calls)

    def freeze(
        self, pointers: Sequence[int], which: str = EVERY, first: int | None = None, stream: int = 0
    ) -> Callable[[int], None]:
        """Returns a function that makes a call with the addresses `pointers` on the stream that it is given; everything
        except the launches is done now.

        The call is prepared for `stream`; the first call on another stream takes longer. `which` selects one kind of
        launches (EVERY, KERNELS, LIBRARIES or RESIDUAL); if `first` is not None, only the first `first` launches are
        made. If residual calls are left out, their results come from one complete call that is made now."""
        whole = first is None and all(which in (EVERY, kind) for kind in self._kinds)
        if whole and self.wants_lasting_memory:
            self._frozen_bytes += self._call_bytes
            self._space = self._space or self._capture_space()
            graph = self._graph(self._space)
            graph.ready(pointers, stream)
            return lambda stream: graph.run(pointers, stream)
        if self._calls:
            return self._freeze_around_calls(pointers, which, first)
        steps = [step for step, kind in zip(self._launches, self._kinds, strict=True) if which in (EVERY, kind)]
        steps = steps[:first]
        frame = LaunchFrame(steps, stream, self._grapher)
        frame.fill(pointers)

        def run(stream: int) -> None:
            if frame.stream != stream:
                frame.move(stream)
            frame.launch(self._fail)

        return run

    def _freeze_around_calls(self, pointers: Sequence[int], which: str, first: int | None) -> Callable[[int], None]:
        frame, (addresses, tensors) = LaunchFrame(self._launches, 0), self._changeable(pointers, None)
        if which != EVERY or first is not None:
            self._step_through(frame, addresses, tensors, EVERY)
            return lambda stream: self._step_through(frame, addresses, tensors, which, first)

        def run(stream: int) -> None:
            if frame.stream != stream:
                frame.move(stream)
            self._step_through(frame, addresses, tensors, EVERY)
            # As in PyTorch, intermediate results are freed after use.
            for index in self.given:
                tensors[index] = None

        return run

    def _changeable(self, pointers: Sequence[int], tensors: list[Any] | None) -> tuple[list[int], list[Any]]:
        """Returns pointers and tensors for a call with residual calls, which change both: a copy of `pointers`, and
        `tensors` itself, or new tensors over the pointers if that is None."""
        if tensors is None:
            from .pytorch.residual import tensors_at

            tensors = [None] * len(self.names)
            made = tensors_at([(pointers[index], *held) for index, held in self.tensors_of.items()], self.device)
            for index, tensor in zip(self.tensors_of, made, strict=True):
                tensors[index] = tensor
        return list(pointers), tensors

    def _step_through(
        self, frame: LaunchFrame, pointers: list[int], tensors: list[Any], which: str, first: int | None = None
    ) -> None:
        """Runs the first `first` launches in order (None: all), those of the kind `which` only. Residual calls set the
        pointers that later launches use."""
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
        """Returns the kinds of launches in the plan: KERNELS, LIBRARIES (cuBLASLt, cuDNN), RESIDUAL (PyTorch's own
        operators)."""
        return frozenset(self._kinds)


def _bytes(value: plans.BoundValue) -> int:
    return math.prod(value.shape) * plans.DTYPE_BYTES[value.dtype]


def _can_be_held(calls: Sequence[Residual]) -> bool:
    from .pytorch.held import can_be_held

    return can_be_held(calls)


def _sizes(spec: dict[str, Any], dims: dict[str, int]) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    return plans.shape(spec, dims), plans.strides(spec, dims), plans.byte_size(spec, dims)


def bind(
    plan: dict[str, Any], dims: dict[str, int], module: CpuModule | CudaModule, which: str = "launches"
) -> BoundPlan:
    """Evaluates a plan for the sizes `dims` and looks up its kernels in a loaded binary. `which` is the list of
    launches: "launches" or "prepare". Raises PlanError or CudaError."""
    return BoundPlan(plan, dims, module, which)


def provide_openmp() -> None:
    """Makes an OpenMP runtime visible to shared objects that were linked without one. Raises PlanError if there is
    none.

    A process with torch has already loaded a runtime; with that one there is only one thread pool, and
    `torch.set_num_threads` is respected. In other processes the system's libgomp is loaded."""
    if _openmp:
        return
    for path in [*_mapped_openmp(), "libgomp.so.1", "libomp.so.5", "libiomp5.so"]:
        try:
            _openmp.append(ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL))
            return
        except OSError:
            continue
    raise plans.PlanError("no OpenMP runtime found: install libgomp1")


def start_threads() -> None:
    """Starts the threads of the OpenMP runtime, if it is GNU's. A thread that appears in the process later was then
    started by a kernel, not by the runtime."""
    provide_openmp()
    parallel = getattr(_openmp[0], "GOMP_parallel", None)
    if parallel is not None:
        # Each thread calls a function without effect; 0 means the usual number of threads.
        parallel(ctypes.CDLL(None).getpid, None, 0, 0)


_openmp: list[ctypes.CDLL] = []


def _mapped_openmp() -> list[str]:
    if not os.path.exists("/proc/self/maps"):
        return []
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if line.count("/")}
    return sorted(path for path in paths if os.path.basename(path).startswith(("libgomp", "libomp", "libiomp")))
