"""Checks before each call of a module whether the kernels may replace its `forward`, and runs them if so."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from operator import itemgetter
from typing import Any

import torch
from torch.autograd import forward_ad

from ..runner.cuda_driver import CudaError
from ..runner.locks import ForkSafeLock
from ..runner.plan import PlanError
from ..runner.pytorch.tensors import DTYPES
from . import operators, sizes
from .binaries import Binaries
from .calls import CallPattern
from .contract import Contract, StateUpdate
from .launch import AppliedLauncher, Misaligned
from .layouts import is_plain, layout_of
from .strided import copied, laid_out
from .watch import InstanceVerdict

#: Most combinations of sizes, dtypes and devices that are remembered for one class, whether accepted or refused.
_REMEMBERED = 512

_grad_enabled = torch.is_grad_enabled
_autocast = torch.is_autocast_enabled
# If one of these is active, a call does more than compute: it is traced, under vmap, differentiated or dispatched to a
# mode. If torch lacks one of them, the import fails here and the package keeps the original.
_tracing = torch._C._get_tracing_state
_transform = torch._C._functorch.peek_interpreter_stack
_modes = torch._C._len_torch_dispatch_stack
_profiling = torch._C._autograd._profiler_enabled
_deterministic = torch.are_deterministic_algorithms_enabled

_lock = ForkSafeLock()

Key = tuple[Any, ...]


class Guard:
    """Decides for one class whether the kernels may serve a call, by all that `contract` lists, and runs them. With
    `outer`, another guard takes the calls that this one refuses."""

    def __init__(
        self, contract: Contract, cls: type[torch.nn.Module], pattern: CallPattern, *, outer: bool = False
    ) -> None:
        self.contract = contract
        self.cls = cls
        self.binaries = Binaries(
            contract.parts, contract.size, contract.target, contract.cpu_flags, contract.binary_flags
        )
        self.fallbacks: dict[str, int] = {}
        self.unavailable = ""
        self._pattern = pattern
        #: Whether the original of this guard is another guard. Then a refused call is no fallback yet, because that
        #: guard may accept it.
        self._outer = outer
        self._target = contract.target
        self._ordered = _in_order(contract.order)
        self._watched: dict[int, InstanceVerdict] = {}
        self._launches: dict[Key, AppliedLauncher | str] = {}
        self._retired = 0
        self._reproducible = contract.reproducible
        self._moved = StateUpdate(contract.state)
        self.operator = operators.register(
            contract.operator,
            contract.target,
            [contract.inputs[index]["spec"] for index in contract.order],
            contract.outputs,
            self._operate,
        )

    def run(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any] | None:
        """Returns the outputs of the kernels for this call, or None if the original has to run. Counts the call, as one
        of the kernels or as a fallback."""
        outputs = self.outputs(module, args, kwargs)
        if isinstance(outputs, str):
            self.left(outputs)
            return None
        return outputs

    def left(self, reason: str) -> None:
        """Counts a fallback for `reason`. Does nothing if another guard takes the calls that this one refuses, because
        that guard may accept the call."""
        if not self._outer:
            with _lock:
                self.fallbacks[reason] = self.fallbacks.get(reason, 0) + 1

    def outputs(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any] | str:
        """Returns the outputs of the kernels for this call, or the reason, as a short text, why the original has to
        run."""
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
        outputs = self._launch(tensors, watched)
        if self._moved.any and not isinstance(outputs, str):
            self._moved.on(module, outputs)
        return outputs

    def _launch(self, given: tuple[Any, ...], watched: InstanceVerdict) -> Sequence[Any] | str:
        held = watched.tensors()
        tensors = (*given, *held)
        launch = watched.launchers.find(tensors) or self._looked_up(given, held, watched)
        if isinstance(launch, str):
            return launch
        if not self._reproducible and _deterministic():
            return "deterministic"
        ordered = self._ordered(tensors)
        if _profiling():
            outputs = self.operator(*ordered)
            return (outputs,) if len(self.contract.outputs) == 1 else outputs
        return self._execute(launch, ordered)

    def _looked_up(self, given: tuple[Any, ...], held: list[Any], watched: InstanceVerdict) -> AppliedLauncher | str:
        """Returns the launcher for the arguments `given` and the parameters and buffers `held`, or the reason, as a
        short text, why there is none."""
        grad = _grad_enabled()
        layout = watched.layouts.of(held)
        if layout is None:
            return "tensor type"
        if grad and layout.requires_grad:
            return "gradient"
        parts: list[Any] = [layout]
        for tensor in given:
            if not is_plain(tensor):
                return "tensor type"
            if grad and tensor.requires_grad:
                return "gradient"
            parts += layout_of(tensor)
        key, tensors = tuple(parts), (*given, *held)
        launch = self._launches.get(key)
        if launch is None:
            return self._remember(key, tensors)
        if isinstance(launch, AppliedLauncher):
            # Not at the first call with these sizes: many come only once.
            with _lock:
                if self._launches.get(key) is launch:
                    watched.launchers.store(tensors, launch)
        return launch

    def _execute(self, launch: AppliedLauncher, ordered: Sequence[Any]) -> Sequence[Any] | str:
        try:
            outputs = launch(ordered)
        except Misaligned:
            copies = self._aligned(ordered)
            return "alignment" if copies is None else self._execute(launch, copies)
        except CudaError as error:
            self.disable("launch failed", str(error))
            return "launch failed"
        launch.tick()
        return outputs

    def _aligned(self, ordered: Sequence[Any]) -> list[Any] | None:
        """Returns the tensors with a copy of each whose address is not aligned; None if the original is faster than the
        kernels with copies, or if a copy has other strides."""
        if not self.contract.copies_unaligned:
            return None
        mask = self.contract.alignment - 1
        copies = [copied(tensor) if tensor.data_ptr() & mask else tensor for tensor in ordered]
        fits = all(
            not copy.data_ptr() & mask and copy.stride() == tensor.stride()
            for copy, tensor in zip(copies, ordered, strict=True)
        )
        return copies if fits else None

    def disable(self, reason: str, cause: str) -> None:
        """Lets the original run in all later calls; their fallbacks count under `reason`. Warns with the text `cause`,
        the first time only."""
        if not self.unavailable:
            self.unavailable = reason
            warnings.warn(
                f"{self.contract.class_name}: the original runs, not its kernels: {cause}", RuntimeWarning, stacklevel=2
            )

    def kernel_calls(self) -> int:
        return self._retired + sum(
            one.calls() for one in tuple(self._launches.values()) if isinstance(one, AppliedLauncher)
        )

    def reset(self) -> None:
        """Sets the counters of calls and fallbacks to zero."""
        with _lock:
            self.fallbacks.clear()
            self._forget()
            self._retired = 0

    def _forget(self) -> None:
        """Forgets all launchers. The caller holds `_lock`."""
        self._launches.clear()
        for watched in self._alive():
            watched.launchers.clear()

    def _alive(self) -> list[InstanceVerdict]:
        """Returns the verdicts (whether an instance still fits the contract) of all instances that were called and
        still exist."""
        while True:
            try:
                return list(self._watched.values())
            except RuntimeError:  # an instance was collected meanwhile
                continue

    def _watch(self, module: torch.nn.Module) -> InstanceVerdict:
        held = [value["spec"]["shape"] for value in self.contract.inputs if value["kind"] != "input"]
        watched = InstanceVerdict(module, self.contract.attributes, self.contract.paths, held)
        key = id(module)
        weakref.finalize(module, self._watched.pop, key, None).atexit = False
        self._watched[key] = watched
        return watched

    def _remember(self, key: Key, tensors: Sequence[torch.Tensor]) -> AppliedLauncher | str:
        """Makes the launcher for these tensors. Returns it, or the reason, as a short text, why the kernels cannot run
        on them; stores the result under `key` (the tensors' layouts), unless the reason is temporary."""
        launcher: AppliedLauncher | str = self._unfit(tensors)
        if not launcher:
            try:
                launcher = self._bind(tensors)
            except (OSError, PlanError, CudaError, sizes.ShapeMismatch) as error:
                self.disable("unavailable", str(error))
                launcher = "unavailable"
        if not (launcher == "capturing" or launcher == "unavailable"):
            with _lock:
                if len(self._launches) >= _REMEMBERED:
                    self._retired += sum(
                        one.calls() for one in self._launches.values() if isinstance(one, AppliedLauncher)
                    )
                    self._forget()
                launcher = self._launches.setdefault(key, launcher)
        return launcher

    def _bind(self, tensors: Sequence[torch.Tensor]) -> AppliedLauncher:
        contract = self.contract
        dims = sizes.match_shapes([value["spec"]["shape"] for value in contract.inputs], [t.shape for t in tensors])
        return self._make(dims, tensors[0].device)

    def _make(self, dims: dict[str, int], device: torch.device) -> AppliedLauncher:
        contract = self.contract
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            return AppliedLauncher(contract.plan, contract.outputs, dims, self.binaries, device, contract.alignment)

    def _unfit(self, tensors: Sequence[torch.Tensor]) -> str:
        """Returns the reason, as a short text, why shapes, dtypes, layout or device of these tensors do not fit the
        kernels; "" if they fit."""
        contract = self.contract
        device = tensors[0].device
        if device.type != self._target or any(tensor.device != device for tensor in tensors):
            return "device"
        specs = [value["spec"] for value in contract.inputs]
        if any(DTYPES[spec["dtype"]] is not tensor.dtype for spec, tensor in zip(specs, tensors, strict=True)):
            return "dtype"
        try:
            dims = sizes.match_shapes([spec["shape"] for spec in specs], [tensor.shape for tensor in tensors])
        except sizes.ShapeMismatch:
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
        # During a capture nothing may be bound that runs a library launch to choose an algorithm or allocates to load a
        # binary.
        at_rest = self.binaries.is_loaded(device) and not any(one.get("library") for one in contract.plan["launches"])
        if device.type == "cuda" and not at_rest and torch.cuda.is_current_stream_capturing():
            return "capturing"
        return ""

    def _operate(self, *ordered: torch.Tensor) -> list[torch.Tensor]:
        """Runs the kernels on the plan's inputs, in their order, and returns the outputs. This implements the
        registered operator, which compiled programs call. It checks nothing, because the decision for the kernels was
        made while the program was traced."""
        contract = self.contract
        specs = [contract.inputs[index]["spec"] for index in contract.order]
        dims = sizes.match_shapes([spec["shape"] for spec in specs], [tensor.shape for tensor in ordered])
        fitting = [_fitting(spec, tensor, dims) for spec, tensor in zip(specs, ordered, strict=True)]
        key = ("operator", *((tensor.shape, tensor.device) for tensor in fitting))
        launch = self._launches.get(key)
        if not isinstance(launch, AppliedLauncher):
            launch = self._make(dims, ordered[0].device)
            self._launches[key] = launch
        launch.tick()
        return launch(fitting)


def _in_order(order: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Returns a function that takes a sequence and returns a tuple of its elements at the indices `order`."""
    if len(order) < 2:
        return lambda values: tuple([values[index] for index in order])
    return itemgetter(*order)


def _in_range(ranges: dict[str, list[int | None]], dims: dict[str, int]) -> bool:
    """Whether every size in `dims` lies in its range [lowest, highest] (None: no bound), for which the
    graph is valid."""
    for name, (low, high) in ranges.items():
        size = dims.get(name, low)
        if size is not None and ((low is not None and size < low) or (high is not None and size > high)):
            return False
    return True


def _fitting(spec: dict[str, Any], tensor: torch.Tensor, dims: dict[str, int]) -> torch.Tensor:
    """Returns the tensor itself if it has the strides of `spec` at the sizes `dims`, otherwise a copy with these
    strides."""
    if _laid_out(spec, tensor, dims):
        return tensor
    if spec.get("strides") is None:
        return tensor.contiguous()
    return laid_out(tensor, [sizes.evaluate(stride, dims) for stride in spec["strides"]])


def _laid_out(spec: dict[str, Any], tensor: torch.Tensor, dims: dict[str, int]) -> bool:
    """Whether the tensor has the strides of `spec` at the sizes `dims`; the stride of an axis of length 1 does not
    count."""
    if spec.get("strides") is None:
        return tensor.is_contiguous()
    wanted = [sizes.evaluate(stride, dims) for stride in spec["strides"]]
    return all(size == 1 or want == got for size, want, got in zip(tensor.shape, wanted, tensor.stride(), strict=True))
