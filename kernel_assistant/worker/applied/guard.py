"""Decides, call by call, whether the kernels may stand in for `forward`, and runs them if so."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch.autograd import forward_ad

from ..runner.cuda_driver import CudaError
from ..runner.plan import PlanError
from ..runner.pytorch.tensors import DTYPES
from . import operators, sizes
from .binaries import Binaries
from .calls import CallPattern
from .contract import Contract
from .launch import Launch, Misaligned
from .locks import ForkSafeLock
from .state import Moved
from .watch import Watched

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_STRIDED = torch.strided
#: Sizes, dtypes and devices that are remembered for one class, good and bad.
_REMEMBERED = 512

_grad_enabled = torch.is_grad_enabled
_autocast = torch.is_autocast_enabled
# Anything below means that a call is more than arithmetic: a trace, vmap, a derivative, a dispatch mode. A torch
# that lacks one of these raises here, and then the package stays with the original.
_tracing = torch._C._get_tracing_state
_transform = torch._C._functorch.peek_interpreter_stack
_modes = torch._C._len_torch_dispatch_stack
_profiling = torch._C._autograd._profiler_enabled
_deterministic = torch.are_deterministic_algorithms_enabled

_lock = ForkSafeLock()

Key = tuple[Any, ...]


class Guard:
    """One class of one package. `run` gives the outputs, or None where the original has to run."""

    def __init__(
        self, contract: Contract, cls: type[torch.nn.Module], pattern: CallPattern, *, outer: bool = False
    ) -> None:
        self.contract = contract
        self.cls = cls
        self.binaries = Binaries(contract.folder, contract.target, contract.cpu_flags, contract.binary_flags)
        self.fallbacks: dict[str, int] = {}
        self.unavailable = ""
        self._pattern = pattern
        #: What another guard inside may serve is not counted as left to the original.
        self._outer = outer
        self._target = contract.target
        self._order = contract.order
        self._watched: dict[int, Watched] = {}
        self._launches: dict[Key, Launch | str] = {}
        self._retired = 0
        self._reproducible = contract.reproducible
        self._moved = Moved(contract.state)
        self.operator = operators.register(
            contract.operator,
            contract.target,
            [contract.inputs[index]["spec"] for index in contract.order],
            contract.outputs,
            self._operate,
        )

    def run(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any] | None:
        """Outputs of the kernels for this call, or None; either is counted."""
        found = self.outputs(module, args, kwargs)
        if isinstance(found, str):
            if self._outer:
                return None
            with _lock:
                self.fallbacks[found] = self.fallbacks.get(found, 0) + 1
            return None
        return found

    def outputs(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any] | str:
        """Outputs of the kernels, or the reason why the original has to run."""
        if self.unavailable:
            return self.unavailable
        if _tracing() is not None or _transform() is not None or _modes() or forward_ad._current_level >= 0:
            return "transform"
        if _autocast(self._target):
            return "autocast"
        tensors = self._pattern.tensors(args, kwargs)
        if tensors is None:
            return "arguments"
        if type(module) is not self.cls:
            return "subclass"
        watched = self._watched.get(id(module))
        if watched is None or watched.reference() is not module:
            watched = self._watch(module)
        reason = watched.reason()
        if reason:
            return reason
        found = self._launch((*tensors, *watched.tensors()))
        if self._moved.any and not isinstance(found, str):
            self._moved.on(module, found)
        return found

    def _launch(self, tensors: tuple[Any, ...]) -> Sequence[Any] | str:
        grad = _grad_enabled()
        parts: list[Any] = []
        for tensor in tensors:
            if type(tensor) not in _PLAIN or tensor.layout is not _STRIDED:
                return "tensor type"
            if grad and tensor.requires_grad:
                return "gradient"
            parts += (tensor.shape, tensor.dtype, tensor.device, tensor.stride())
        key = tuple(parts)
        launch = self._launches.get(key)
        if launch is None:
            launch = self._remember(key, tensors)
        if isinstance(launch, str):
            return launch
        if not self._reproducible and _deterministic():
            return "deterministic"
        ordered = [tensors[index] for index in self._order]
        if _profiling():
            outputs = self.operator(*ordered)
            return (outputs,) if len(self.contract.outputs) == 1 else outputs
        return self._execute(launch, ordered)

    def _execute(self, launch: Launch, ordered: list[Any]) -> Sequence[Any] | str:
        try:
            outputs = launch(ordered)
        except Misaligned:
            return "alignment"
        except CudaError as error:
            self.disable("launch failed", str(error))
            return "launch failed"
        launch.tick()
        return outputs

    def disable(self, reason: str, cause: str) -> None:
        """Stay with the original from now on, and say so once."""
        if not self.unavailable:
            self.unavailable = reason
            warnings.warn(
                f"{self.contract.class_name}: the original runs, not its kernels: {cause}", RuntimeWarning, stacklevel=2
            )

    def kernel_calls(self) -> int:
        return self._retired + sum(one.calls() for one in tuple(self._launches.values()) if isinstance(one, Launch))

    def reset(self) -> None:
        """Counters back to zero."""
        with _lock:
            self.fallbacks.clear()
            self._launches.clear()
            self._retired = 0

    def _watch(self, module: torch.nn.Module) -> Watched:
        held = [value["spec"]["shape"] for value in self.contract.inputs if value["kind"] != "input"]
        watched = Watched(module, self.contract.attributes, self.contract.paths, held)
        key = id(module)
        weakref.finalize(module, self._watched.pop, key, None).atexit = False
        self._watched[key] = watched
        return watched

    def _remember(self, key: Key, tensors: Sequence[torch.Tensor]) -> Launch | str:
        """A launch for these sizes, or the reason why there is none."""
        found: Launch | str = self._unfit(tensors)
        if not found:
            try:
                found = self._bind(tensors)
            except (OSError, PlanError, CudaError, sizes.Mismatch) as error:
                self.disable("unavailable", str(error))
                found = "unavailable"
        if not (found == "capturing" or found == "unavailable"):
            with _lock:
                if len(self._launches) >= _REMEMBERED:
                    self._retired += sum(one.calls() for one in self._launches.values() if isinstance(one, Launch))
                    self._launches.clear()
                found = self._launches.setdefault(key, found)
        return found

    def _bind(self, tensors: Sequence[torch.Tensor]) -> Launch:
        contract = self.contract
        dims = sizes.match_shapes([value["spec"]["shape"] for value in contract.inputs], [t.shape for t in tensors])
        return self._make(dims, tensors[0].device)

    def _make(self, dims: dict[str, int], device: torch.device) -> Launch:
        contract = self.contract
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            return Launch(contract.plan, contract.outputs, dims, self.binaries, device, contract.alignment)

    def _unfit(self, tensors: Sequence[torch.Tensor]) -> str:
        """Why the kernels are not for these tensors: "" if they are. Shapes, dtypes, layout, device."""
        contract = self.contract
        device = tensors[0].device
        if device.type != self._target or any(tensor.device != device for tensor in tensors):
            return "device"
        specs = [value["spec"] for value in contract.inputs]
        if any(DTYPES[spec["dtype"]] is not tensor.dtype for spec, tensor in zip(specs, tensors, strict=True)):
            return "dtype"
        try:
            dims = sizes.match_shapes([spec["shape"] for spec in specs], [tensor.shape for tensor in tensors])
        except sizes.Mismatch:
            return "shape"
        if not _in_range(contract.ranges, dims):
            return "size"
        if not all(_laid_out(spec, tensor, dims) for spec, tensor in zip(specs, tensors, strict=True)):
            return "strides"
        counts = [tensor.numel() for tensor in tensors]
        if min(counts) == 0 or max(counts) > contract.max_elements:
            return "size"
        if max(counts[: len(contract.user_inputs)], default=0) < contract.min_elements:
            return "small"
        # Binding a library launch runs it to choose an algorithm, loading a binary allocates: not inside a capture.
        at_rest = self.binaries.is_loaded(device) and not any(one.get("library") for one in contract.plan["launches"])
        if device.type == "cuda" and not at_rest and torch.cuda.is_current_stream_capturing():
            return "capturing"
        return ""

    def _operate(self, *ordered: torch.Tensor) -> list[torch.Tensor]:
        """What the operator runs inside a compiled program, where the decision has been made already."""
        contract = self.contract
        shapes = [contract.inputs[index]["spec"]["shape"] for index in contract.order]
        dims = sizes.match_shapes(shapes, [tensor.shape for tensor in ordered])
        fitting = [
            tensor if _laid_out(contract.inputs[index]["spec"], tensor, dims) else tensor.contiguous()
            for index, tensor in zip(contract.order, ordered, strict=True)
        ]
        key = ("operator", *((tensor.shape, tensor.device) for tensor in fitting))
        launch = self._launches.get(key)
        if not isinstance(launch, Launch):
            launch = self._make(dims, ordered[0].device)
            self._launches[key] = launch
        launch.tick()
        return launch(fitting)


def _in_range(ranges: dict[str, list[int | None]], dims: dict[str, int]) -> bool:
    """Whether the sizes are among those for which the graph holds."""
    for name, (low, high) in ranges.items():
        size = dims.get(name, low)
        if size is not None and ((low is not None and size < low) or (high is not None and size > high)):
            return False
    return True


def _laid_out(spec: dict[str, Any], tensor: torch.Tensor, dims: dict[str, int]) -> bool:
    """Whether the strides are those that were verified; of an axis of length one they do not matter."""
    if spec.get("strides") is None:
        return tensor.is_contiguous()
    wanted = [sizes.evaluate(stride, dims) for stride in spec["strides"]]
    return all(size == 1 or want == got for size, want, got in zip(tensor.shape, wanted, tensor.stride(), strict=True))
