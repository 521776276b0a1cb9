"""Runs a plan (kernel launches over buffers) at given sizes on one device. PyTorch allocates outputs and scratch
memory."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from ..runner import executor
from ..runner.plan_graph import PlanGraph
from ..runner.pytorch.arena import arena, keep
from ..runner.pytorch.tensors import DTYPES
from .binaries import Binaries, driver, libraries
from .host_memory import host_allocator, host_bytes
from .packing import PackedParameters, allocator, device_bytes
from .precision import call_flags, library_flags

#: Scratch buffers start at multiples of this many bytes, as in the judge.
_SCRATCH_ALIGNMENT = 256

_address = torch.Tensor.data_ptr
#: Without the call that starts CUDA: there are tensors on the device.
_current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
_capturing: Callable[[], bool] = torch.cuda.is_current_stream_capturing
_LAYOUT = ("dtype", "shape", "strides")
#: Calls on a stream before the plan becomes a graph there: they show which tensors are elsewhere at each call.
_PATIENCE = 2
#: Stands for an output, or scratch memory, that is not allocated.
_NOTHING = torch.empty(0)

Tensors = Sequence[torch.Tensor]


class Misaligned(ValueError):
    """A tensor's address is not a multiple of the alignment with which the kernels were verified."""


class AppliedLauncher:
    """Runs a plan with the sizes `dims` on one device; a call takes the input tensors in the order of the plan.
    Re-entrant and thread-safe.

    `outputs` are the specs of the tensors that the module returns, which may view the plan's output buffers in another
    shape. `alignment` of the inputs' addresses is in bytes."""

    def __init__(
        self,
        plan: dict[str, Any],
        outputs: list[dict[str, Any]],
        dims: dict[str, int],
        binaries: Binaries,
        device: torch.device,
        alignment: int,
    ) -> None:
        if device.type == "cuda":
            driver(device.index)
        module = binaries.module(device)
        self._device = device
        on_host = device.type == "cpu"
        #: Functions that make a result, from its spec and the sizes, and scratch memory, from its bytes.
        self._allocator = host_allocator if on_host else partial(allocator, device=device)
        self._bytes = host_bytes if on_host else device_bytes
        self._plan, self._dims, self._module, self._specs = plan, dims, module, outputs
        self._library = any(launch.get("library") for launch in plan["launches"])
        self._flags: dict[str, bool] = {}
        self._bind()
        self._mask = alignment - 1
        #: The addresses of the last call, all of them aligned.
        self._aligned: list[int] = []
        #: Where scratch memory was in the last call, the offsets of its buffers and their addresses: one object, since
        #: threads share it.
        self._addresses: tuple[int, list[int], list[int]] = 0, [], []
        self._packing = PackedParameters(plan, dims, module, device) if plan.get("packed") else None
        self._stream: Callable[[], int] = _host_stream if device.type == "cpu" else _CudaStream(device)
        self._on_gpu = device.type == "cuda"
        self._ticks = itertools.count()
        self.tick = self._ticks.__next__

    def _bind(self) -> None:
        """Evaluates the plan for the sizes. Library launches (cuBLASLt, cuDNN) use PyTorch's settings of this moment,
        and CUDA graphs contain the algorithms that PyTorch chooses by them."""
        shared = libraries(self._device.index) if self._library else None
        if shared:
            shared.flags = library_flags()
        bound = executor.bind(self._plan, self._dims, self._module)
        if shared:
            shared.kept.save()
        in_graphs = bool(self._plan.get("residual")) and bound.wants_lasting_memory
        self._read_flags = call_flags if in_graphs else library_flags
        self._follows_flags = self._library or in_graphs
        if self._follows_flags:
            self._flags = self._read_flags()
        sizes = [*bound.scratch_bytes.values()]
        self._has_workspace = executor.WORKSPACE in bound.names
        if self._has_workspace:
            sizes.append(bound.workspace_bytes)
        self._bound, self._run, self._scratch = bound, bound.run, _offsets(sizes)
        self._held = _HeldCalls() if bound.wants_lasting_memory else None
        inputs = len(self._plan["inputs"])
        first = inputs + len(self._plan["outputs"])
        # The results of PyTorch's own operators are returned as they are: nothing is allocated for them.
        self._left_out = [
            inputs + number
            for number, (spec, own) in enumerate(zip(self._specs, self._plan["outputs"], strict=True))
            if inputs + number in bound.returned and all(spec.get(key) == own.get(key) for key in _LAYOUT)
        ]
        self._outputs = [
            _nothing if inputs + number in self._left_out else self._allocator(spec, self._dims)
            for number, spec in enumerate(self._specs)
        ]
        #: Scratch buffers that a residual call reads as tensors.
        self._viewed = [(index, index - first) for index in bound.tensors_of if index >= first]

    def calls(self) -> int:
        """Returns the number of calls of `tick`, read from the text of the iterator that `tick` advances: `count(7)`
        means seven. Advancing an iterator is atomic, incrementing an integer is not."""
        return int(repr(self._ticks)[len("count(") : -1])

    def __call__(self, tensors: Tensors) -> list[torch.Tensor]:
        """Returns the outputs for these inputs. Raises Misaligned, before anything runs, if an input's address is not
        aligned, and CudaError if a call of the driver fails."""
        if self._on_gpu and _current_device() != self._device.index:
            with torch.cuda.device(self._device):
                return self._call(tensors)
        return self._call(tensors)

    def _call(self, tensors: Tensors) -> list[torch.Tensor]:
        pointers = list(map(_address, tensors))
        if pointers != self._aligned:
            mask = self._mask
            if any(pointer & mask for pointer in pointers):
                raise Misaligned
            self._aligned = pointers.copy()
        outputs = [allocate() for allocate in self._outputs]
        pointers += map(_address, outputs)
        stream = self._stream()
        if self._follows_flags and self._flags != self._read_flags():
            self._bind()
        workspace: list[int] = []
        scratch, graph = None, None
        if self._scratch:
            held = self._held
            # A graph that somebody captures keeps the memory that it uses, and may run beside us.
            if held is not None and not _capturing():
                scratch = arena(self._device, stream, self._scratch[-1])
                graph = held.on(scratch, stream, self._bound)
            elif self._scratch[-1] or self._viewed:
                scratch = self._bytes(self._scratch[-1])
            else:
                scratch = _NOTHING
            base, offsets, known = scratch.data_ptr(), self._scratch, self._addresses
            if known[0] != base or known[1] is not offsets:
                known = self._addresses = base, offsets, [base + offset for offset in offsets[:-1]]
            pointers += known[2]
            if self._has_workspace:
                workspace.append(pointers.pop())
        if self._packing is not None:
            pointers.extend(self._packing.pointers(tensors, pointers, stream))
        pointers += workspace
        if graph is not None:
            graph.run(pointers, stream, capturing=False)
        elif self._plan.get("residual"):
            return self._run_around_calls(tensors, outputs, scratch, pointers, stream)
        else:
            self._run(pointers, stream)
        return outputs

    def _run_around_calls(
        self,
        tensors: Tensors,
        outputs: list[torch.Tensor],
        scratch: torch.Tensor | None,
        pointers: list[int],
        stream: int,
    ) -> list[torch.Tensor]:
        """Runs a plan with residual calls (calls of PyTorch's own operators), which need tensors instead of addresses.
        `pointers` holds the address of every buffer. Returns the outputs."""
        bound, first = self._bound, len(tensors)
        held: list[Any] = [*tensors, *outputs, *[None] * (len(bound.names) - first - len(outputs))]
        for index in self._left_out:
            held[index] = None
        for index, scratch_index in self._viewed:
            spec, (shape, strides, size) = bound.tensors_of[index]
            assert scratch is not None
            start = self._scratch[scratch_index]
            held[index] = scratch[start : start + size].view(DTYPES[spec["dtype"]]).as_strided(shape, strides)
        self._run(pointers, stream, held)
        return held[first : first + len(outputs)]


class _HeldCalls(threading.local):
    """The CUDA graphs of one plan, one for each stream of each thread. A graph is valid only for scratch memory at the
    address with which it was made."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[torch.Tensor, PlanGraph]] = {}

    def on(self, scratch: torch.Tensor, stream: int, bound: executor.BoundPlan) -> PlanGraph:
        """Returns the graph for `stream`. A new one is made if `scratch` is not the tensor of the stream's previous
        call."""
        known = self._of.get(stream)
        if known is not None and known[0] is scratch:
            return known[1]
        graph = bound.held(_PATIENCE)
        keep(self._of, stream, (scratch, graph))
        return graph

    @property
    def graphs(self) -> list[PlanGraph]:
        """Returns the graphs of the current thread."""
        return [graph for _, graph in self._of.values()]


class _CudaStream:
    """A function without arguments that returns the driver's handle of the device's current stream. Makes the primary
    context current once per thread."""

    def __init__(self, device: torch.device) -> None:
        self._index: int = device.index
        self._seen = threading.local()
        self._raw: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)

    def __call__(self) -> int:
        if not hasattr(self._seen, "ready"):
            driver(self._index)
            self._seen.ready = True
        if self._raw is not None:
            return self._raw(self._index)
        return int(torch.cuda.current_stream(self._index).cuda_stream)


def _nothing() -> torch.Tensor:
    return _NOTHING


def _host_stream() -> int:
    # torch sets its number of OpenMP threads in a new thread only once it is called there.
    torch.get_num_threads()
    return 0


def _offsets(sizes: Any) -> list[int]:
    """Returns the offset of each scratch buffer in one allocation, then the size of the allocation, all in bytes; empty
    if there is no scratch."""
    offsets = [0]
    for size in sizes:
        offsets.append(offsets[-1] + -(-size // _SCRATCH_ALIGNMENT) * _SCRATCH_ALIGNMENT)
    return offsets if len(offsets) > 1 else []
