"""The runner: executes the plans that the judge sends, inside the sandbox.

Standard library only, except for plans with residual calls, for which it imports torch.

The judge is the process that checks and times candidates. The runner never sees expected outputs, and the judge trusts
none of its answers: the judge's own clock and comparisons decide.

Each request names an operation, `op`. A *set* is one copy of a workload's inputs and outputs; the sets form a ring,
around which calls go. An *arena* is a range of memory that the judge shares.

| op | fields | does |
|---|---|---|
| threads | | starts the threads of the OpenMP runtime (before `load`, without residual calls) |
| load | plan; with residual calls flags (of PyTorch), libraries; descriptor of the binary | loads it, drops the last |
| map | arena, bytes, writable; descriptor | maps shared memory under a name, replacing an earlier one |
| bind | sets: dims, tensors {name: [arena, byte offset]}; quick | fixes sizes and pointers, runs `prepare` (`quick`: \
algorithms of libraries need not be the fastest) |
| only | which, count, first | from now on runs one kind of launches, or the first few, on the first `count` sets |
| trace | | names PyTorch's operators that the kernels reach in one call (plans with residual calls) |
| forget | | drops the plan and all shared memory |
| run | first, count | runs `count` sets from `first` on around the ring, waits for the device |
| capture | first, count, number | makes a CUDA graph of the same calls; answers whether it can |
| replay | number | runs this graph, waits for the device |
| exit | | ends |
"""

from __future__ import annotations

import ctypes
import gc
import os
import socket
import time
from collections.abc import Callable
from typing import Any

from . import plan as plans
from . import wire
from .capture import CapturedCalls, captured
from .cuda_driver import OUT_OF_MEMORY, CudaError, Driver, Events
from .executor import KERNELS, WORKSPACE, BoundPlan, CpuModule, CudaModule, bind, start_threads
from .floating_point import LeftChangedError, floating_point_control
from .libraries import Libraries
from .memory import ImportedMemory, MappedMemory
from .operations.kept_algorithms import KeptAlgorithms

ALIGNMENT = 256
WAKE_BYTES = 4096


class Runner:
    """The state of one runner process: the loaded plan, the shared memory, the prepared calls. Its public methods
    answer the judge's requests of the same name."""

    def __init__(
        self, target: str, device: int, paths: dict[str, str], flags: dict[str, bool], algorithms: dict[str, str]
    ) -> None:
        self.driver = Driver(device) if target == "cuda" else None
        self.kept = KeptAlgorithms(algorithms)
        self.libraries = Libraries(self.driver, paths, flags, self.kept) if self.driver else None
        self.events = Events(self.driver) if self.driver else None
        self.stream = 0
        self.graphs: dict[int, CapturedCalls] = {}
        # Empty blocks write to it: only work makes the device switch to this process.
        self.touched = self.driver.allocate(WAKE_BYTES) if self.driver else 0
        self.arenas: dict[str, MappedMemory | ImportedMemory] = {}
        self.plan: dict[str, Any] = {}
        self.module: CpuModule | CudaModule | None = None
        self.calls: list[Callable[[int], None]] = []
        self.bound: list[tuple[BoundPlan, list[int]]] = []
        self.private: list[int | ctypes.Array[ctypes.c_char]] = []

    def threads(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        start_threads()
        return {}

    def load(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        self._forget()
        self.plan = message["plan"]
        if self.plan.get("residual"):
            # Before our kernels, which then use torch's OpenMP runtime.
            _import_torch(message, self.driver)
        if self.driver:
            # Residual calls run on PyTorch's stream. The default stream cannot be captured.
            self.stream = 0 if self.plan.get("residual") else self.driver.stream
            with os.fdopen(descriptors[0], "rb") as file:
                self.module = CudaModule(self.driver, file.read(), self.libraries)
        else:
            self.module = CpuModule(f"/proc/self/fd/{descriptors[0]}")
            os.close(descriptors[0])
        return {}

    def map(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        name, size, writable = message["arena"], message["bytes"], message["writable"]
        if name in self.arenas:
            self.calls, self.bound, self.graphs = [], [], {}
            self.arenas.pop(name).close()
        if self.driver:
            self.arenas[name] = ImportedMemory(self.driver, descriptors[0], size, writable)
        else:
            self.arenas[name] = MappedMemory(descriptors[0], size, writable)
        return {}

    def bind(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        assert self.module is not None
        self._free_private()
        bound: dict[str, tuple[BoundPlan, BoundPlan | None, dict[str, int]]] = {}
        if self.libraries:
            self.libraries.quick = message.get("quick", False)
        self.calls, self.bound, self.graphs = [], [], {}
        for item in message["sets"]:
            key = repr(item["dims"])
            if key not in bound:
                bound[key] = self._bind_sizes(item["dims"])
            plan, prepare, private = bound[key]
            pointers = [private[name] if name in private else self._address(item, name) for name in plan.names]
            self.calls.append(plan.freeze(pointers, stream=self.stream))
            self.bound.append((plan, pointers))
        seconds = 0.0
        if prepare is not None:
            began = time.perf_counter()
            prepare.run(pointers)
            self._wait()
            seconds = time.perf_counter() - began
        return {"prepare_seconds": seconds, "algorithms": plan.algorithms, "chosen": self.kept.take_fresh()}

    def forget(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        self._forget()
        self.plan = {}
        while self.arenas:
            self.arenas.popitem()[1].close()
        gc.collect()
        return {}

    def run(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        first, count = message["first"], message["count"]
        if not count and self.driver:
            self.driver.fill(self.touched, 0, WAKE_BYTES)
        calls, stream = self._around(first, count), self.stream
        if self.events:
            self.events.record(self.events.begin, stream)
        rounding = None if self.driver or count > 1 else floating_point_control()
        began = time.perf_counter_ns()
        for call in calls:
            call(stream)
        if self.events:
            self.events.record(self.events.end, stream)
        self._wait()
        elapsed = time.perf_counter_ns() - began
        if rounding is not None and rounding != floating_point_control():
            raise LeftChangedError("a kernel leaves another rounding mode, or flushing to zero, to the process")
        return {"seconds": elapsed * 1e-9, "device_ms": self.events.elapsed_ms() if self.events else None}

    def _around(self, first: int, count: int) -> list[Callable[[int], None]]:
        calls = self.calls[first : first + count]
        while self.calls and len(calls) < count:
            calls += self.calls[: count - len(calls)]
        return calls

    def capture(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Makes a CUDA graph of `count` calls, beginning with the one on set number `first` (a set is one copy of the
        inputs and outputs), for `replay`. Answers in `captured` whether that was possible."""
        number, graph = message["number"], None
        self.graphs.pop(number, None)
        if self.driver and self.stream:
            calls = self._around(message["first"], message["count"])
            graph = captured(self.driver, lambda stream: [call(stream) for call in calls])
        if graph is not None:
            self.graphs[number] = graph
        return {"captured": graph is not None}

    def replay(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        assert self.events is not None
        return {"device_ms": self.graphs[message["number"]].milliseconds(self.events)}

    def only(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Prepares calls that make only one kind of launches, or only the first few; `run` makes these from now on.
        They read the values that earlier complete calls have left in memory."""
        which, first = message["which"], message.get("first")
        self.calls = [
            plan.freeze(pointers, which, first, self.stream) for plan, pointers in self.bound[: message["count"]]
        ]
        self._wait()
        return {}

    def trace(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        from .pytorch.trace import operators_during

        plan, pointers = self.bound[0]
        call = plan.freeze(pointers, KERNELS)
        return {"operators": operators_during(lambda: call(0))}

    def _bind_sizes(self, dims: dict[str, int]) -> tuple[BoundPlan, BoundPlan | None, dict[str, int]]:
        assert self.module is not None
        plan = bind(self.plan, dims, self.module)
        prepare = bind(self.plan, dims, self.module, "prepare") if self.plan.get("prepare") else None
        sizes = plan.scratch_bytes | {spec["name"]: plans.byte_size(spec, dims) for spec in self.plan.get("packed", ())}
        private = {name: self._allocate(size) for name, size in sizes.items()}
        if WORKSPACE in plan.names:
            private[WORKSPACE] = self._allocate(plan.workspace_bytes)
        return plan, prepare, private

    def _address(self, item: dict[str, Any], name: str) -> int:
        arena, offset = item["tensors"][name]
        return self.arenas[arena].address + int(offset)

    def _allocate(self, size: int) -> int:
        if self.driver:
            pointer = self.driver.allocate(size)
            self.private.append(pointer)
            return pointer
        block = ctypes.create_string_buffer(size + ALIGNMENT)
        self.private.append(block)
        return -(-ctypes.addressof(block) // ALIGNMENT) * ALIGNMENT

    def _wait(self) -> None:
        if self.driver:
            self.driver.synchronize()

    def _free_private(self) -> None:
        for block in self.private:
            if isinstance(block, int) and self.driver:
                self.driver.free(block)
        self.private = []

    def _forget(self) -> None:
        self.calls, self.bound, self.graphs = [], [], {}
        self._free_private()
        if self.driver and self.plan.get("residual"):
            from .pytorch.flags import give_back

            give_back()
        if isinstance(self.module, CudaModule):
            self.module.close()
        self.module = None


def _import_torch(message: dict[str, Any], driver: Driver | None) -> None:
    """Imports this interpreter's torch and the modules that register other operators, and applies the judge's PyTorch
    settings. The runner starts without site packages, so they are added first."""
    import site
    import tempfile

    site.main()
    # Perhaps no folder is writable here, and what torch imports (dill, torch._dynamo) only wants the name of one.
    tempfile.tempdir = "/tmp"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.tempdir
    from .pytorch.flags import set_flags
    from .pytorch.registered import import_registering

    import_registering(message["libraries"])
    # Afterwards, because a library may change them.
    set_flags(message["flags"], None if driver is None else driver.device.value)


def failure(error: Exception) -> dict[str, Any]:
    """Returns the answer to the judge for an error. `sticky` means that this process cannot continue."""
    if isinstance(error, CudaError):
        kind = "out_of_memory" if error.code == OUT_OF_MEMORY else "crashed"
        return {"ok": False, "kind": kind, "message": str(error), "sticky": error.code != OUT_OF_MEMORY}
    if isinstance(error, LeftChangedError):
        return {"ok": False, "kind": "incorrect", "message": str(error), "sticky": True}
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return {"ok": False, "kind": "out_of_memory", "message": str(error) or "out of memory", "sticky": False}
    # PyTorch's errors may have several lines. An error of the device makes the device unusable.
    text = str(error).strip().partition("\n")[0]
    lost = isinstance(error, RuntimeError) and "CUDA error" in text
    return {"ok": False, "kind": "load_failed", "message": f"{type(error).__name__}: {text}", "sticky": lost}


def main(descriptor: int) -> int:
    """Serves requests on the socket with this descriptor until the judge sends `exit` or closes it. Returns the exit
    status: 1 if the CUDA driver cannot be used, else 0."""
    sock = socket.socket(fileno=descriptor)
    message, _ = wire.receive(sock)
    try:
        paths, flags, algorithms = (message[field] for field in ("libraries", "flags", "algorithms"))
        runner = Runner(message["target"], message.get("device", 0), paths, flags, algorithms)
    except CudaError as error:
        wire.send(sock, failure(error))
        return 1
    wire.send(sock, {"ok": True, "pid": os.getpid()})
    gc.disable()
    operations = {
        "threads": runner.threads,
        "load": runner.load,
        "map": runner.map,
        "bind": runner.bind,
        "only": runner.only,
        "trace": runner.trace,
        "forget": runner.forget,
        "run": runner.run,
        "capture": runner.capture,
        "replay": runner.replay,
    }
    while True:
        try:
            message, descriptors = wire.receive(sock)
        except wire.WireClosed:
            return 0
        if message["op"] == "exit":
            return 0
        ticket = {wire.TICKET: message[wire.TICKET]}
        try:
            answer = operations[message["op"]](message, descriptors)
            wire.send(sock, {"ok": True, **answer, **ticket})
        except (RuntimeError, MemoryError, plans.PlanError, OSError, KeyError, ImportError, TypeError) as error:
            wire.send(sock, {**failure(error), **ticket})
