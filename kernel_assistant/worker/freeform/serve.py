"""The free-form runner: calls a candidate's `forward` for the judge, inside the sandbox.

It uses the protocol of `runner/serve.py`, so the judge treats both kinds of runners alike; it trusts none of their
answers.

| op | fields | does |
|---|---|---|
| load | descriptor of a blob (`spec.py`) | imports the candidate's file |
| map | arena, bytes, writable; descriptor | maps shared memory |
| bind | sets | builds the class with the values in the arena as its state, makes the tensors of all sets |
| run | first, count | calls forward and copies its outputs, waits for the device |
| trace | | calls forward once and names the torch operators and kernels that ran |
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from ..runner import plan as plans
from ..runner import wire
from ..runner.cuda_driver import CudaError, Driver
from ..runner.memory import ImportedMemory, MappedMemory
from ..runner.pytorch.tensors import DTYPES, CudaArrayInterface
from ..runner.serve import WAKE_BYTES
from .candidate import build_model, import_candidate, load_state
from .extensions import Prebuilt, import_extension
from .outputs import OutputError, check_layout, deliver
from .spec import decode_tree, unpack
from .trace import operators_of


class StateError(ValueError):
    """The candidate's module does not accept the reference's state dict."""


class FreeformRunner:
    """The state of a runner process, which serves one candidate."""

    def __init__(self, target: str, device: int) -> None:
        self.device = f"cuda:{device}" if target == "cuda" else "cpu"
        if target == "cuda":
            # Raw launches, Triton's kernels and new streams go to the current device.
            torch.cuda.set_device(device)
        # Start all threads of torch, its profiler and the driver before the judge counts those of the candidate.
        operators_of(lambda: torch.ones(1 << 22, device=self.device).exp_().sum().item())
        self.driver = Driver(device) if target == "cuda" else None
        # Written when the judge wakes the runner: only work makes the device switch to this process.
        self.touched = self.driver.allocate(WAKE_BYTES) if self.driver else 0
        #: Names of arenas that outputs are in.
        self.writable: set[str] = set()
        self.arenas: dict[str, MappedMemory | ImportedMemory] = {}
        self.bytes: dict[str, torch.Tensor] = {}
        self.header: dict[str, Any] = {}
        self.tensors: list[torch.Tensor] = []
        self.module: ModuleType | None = None
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any], list[torch.Tensor]]] = []
        self.model: torch.nn.Module | None = None

    def load(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        with os.fdopen(descriptors[0], "rb") as file:
            self.header, self.tensors = unpack(file.read())
        candidate = self.header["candidate"]
        prebuilt = Prebuilt(candidate["folder"])
        prebuilt.install()
        if candidate["extension"]:
            sys.modules["cuda_extension"] = import_extension(candidate["extension"])
        self.module = import_candidate(os.getcwd(), candidate["text"])
        return {}

    def map(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        name, size, writable = message["arena"], message["bytes"], message["writable"]
        if name in self.arenas:
            self.calls, self.model = [], None
            self.bytes.pop(name, None)
            self.arenas.pop(name).close()
        if self.driver:
            memory: MappedMemory | ImportedMemory = ImportedMemory(self.driver, descriptors[0], size, writable)
            self.bytes[name] = torch.as_tensor(CudaArrayInterface(memory.address, size), device=self.device)
        else:
            memory = MappedMemory(descriptors[0], size, writable)
            self.bytes[name] = torch.frombuffer((ctypes.c_ubyte * size).from_address(memory.address), dtype=torch.uint8)
        self.arenas[name] = memory
        if writable:
            self.writable.add(name)
        return {}

    def bind(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        sets = message["sets"]
        began = time.perf_counter()
        self.model = self._build(sets[0]["tensors"])
        seconds = time.perf_counter() - began
        self.calls = [self._call(item["dims"], item["tensors"]) for item in sets]
        return {"prepare_seconds": seconds}

    def run(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        first, count = message["first"], message["count"]
        if not count:
            if self.driver:
                self.driver.fill(self.touched, 0, WAKE_BYTES)
                self.driver.synchronize()
            return {}
        calls = self.calls[first : first + count]
        while self.calls and len(calls) < count:
            calls += self.calls[: count - len(calls)]
        model = self.model
        assert model is not None
        if count == 1 and len(self.calls) == 1:
            self._check_layout()
        began = time.perf_counter()
        with torch.no_grad():
            for args, kwargs, destinations in calls:
                deliver(model(*args, **kwargs), destinations)
        if self.driver:
            # Not by torch.cuda.synchronize, which a candidate can replace.
            self.driver.synchronize()
        return {"seconds": time.perf_counter() - began, "device_ms": None}

    def trace(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        args, kwargs, _ = self.calls[0]
        model = self.model
        assert model is not None
        with torch.no_grad():
            return {"operators": operators_of(lambda: model(*args, **kwargs))}

    def _check_layout(self) -> None:
        args, kwargs, destinations = self.calls[0]
        assert self.model is not None
        with torch.no_grad():
            result = self.model(*args, **kwargs)
            deliver(result, destinations)
            written = [held for name, held in self.bytes.items() if name in self.writable]
            ranges = [(held.data_ptr(), held.data_ptr() + held.nbytes) for held in written]
            check_layout(result, destinations, ranges)

    def _build(self, locations: dict[str, list[Any]]) -> torch.nn.Module:
        """Returns a new instance of the candidate's class. Its parameters and buffers get the values at `locations`:
        name in the graph → [arena (block of shared memory), byte offset]. Each `bind` makes a new instance, so that the
        candidate cannot keep results of other values or sizes in it."""
        assert self.module is not None
        header = self.header
        leaf = lambda data: self.tensors[data["tensor"]].to(self.device)  # noqa: E731 - a name for one expression
        args, kwargs = decode_tree(header["arguments"], leaf)
        name = header["candidate"]["class"]
        model = build_model(self.module, name, args, kwargs, header["seed"], header["training"], self.device)
        current = {
            item["path"]: self._view(locations[graph_name], item["spec"], {})
            for graph_name, item in header["constants"].items()
        }
        state = {path: current.get(path, self.tensors[index]) for path, index in header["state"].items()}
        try:
            with torch.no_grad():
                load_state(model, state, current)
        except RuntimeError as error:
            raise StateError(" ".join(str(error).split())) from error
        return model

    def _call(self, dims: dict[str, int], locations: dict[str, list[Any]]) -> Any:
        header = self.header
        inputs = [self._view(locations[f"x{index}"], spec, dims) for index, spec in enumerate(header["inputs"])]
        outputs = [
            self._view(locations[name], spec, dims)
            for name, spec in zip(header["output_names"], header["outputs"], strict=True)
        ]
        args, kwargs = decode_tree(header["template"], lambda data: inputs[data["input"]])
        return args, kwargs, outputs

    def _view(self, location: list[Any], spec: dict[str, Any], dims: dict[str, int]) -> torch.Tensor:
        arena, offset = location
        size = plans.byte_size({"name": "view", **spec}, dims)
        flat = self.bytes[arena][offset : offset + size].view(DTYPES[spec["dtype"]])
        return flat.as_strided(plans.shape(spec, dims), plans.strides(spec, dims))


def failure(error: Exception) -> dict[str, Any]:
    """Returns the answer that reports `error` to the judge, with `ok` False, `kind` (incorrect, out_of_memory or
    crashed), `message`, and `sticky`: whether this process cannot continue."""
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0] if lines else 'no message'}"[:400]
    if isinstance(error, (OutputError, StateError)):
        return {"ok": False, "kind": "incorrect", "message": str(error)[:400], "sticky": False}
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error):
        return {"ok": False, "kind": "out_of_memory", "message": text, "sticky": False}
    return {"ok": False, "kind": "crashed", "message": text, "sticky": "CUDA error" in text or "CudaError" in text}


def main(descriptor: int) -> int:
    """Serves the judge's requests on the socket `descriptor` until the judge sends `exit` or closes the socket. Returns
    the exit status: 1 if the device cannot be used."""
    sock = socket.socket(fileno=descriptor)
    message, _ = wire.receive(sock)
    torch.set_grad_enabled(False)
    try:
        runner = FreeformRunner(message["target"], message.get("device", 0))
    except CudaError as error:
        wire.send(sock, failure(error))
        return 1
    wire.send(sock, {"ok": True, "pid": os.getpid()})
    operations: dict[str, Callable[[dict[str, Any], list[int]], dict[str, Any]]] = {
        name: getattr(runner, name) for name in ("load", "map", "bind", "run", "trace")
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
            wire.send(sock, {"ok": True, **operations[message["op"]](message, descriptors), **ticket})
        except Exception as error:  # noqa: BLE001 - a candidate may raise anything; the judge gets it
            wire.send(sock, {**failure(error), **ticket})
