"""Opens a task: builds the module, makes its inputs, traces it, and refuses with a one-line message a module that
cannot be judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..graph.export import ExportedModule
from ..process.memory import require_bytes
from ..process.worker_errors import TaskError, first_line, with_inputs
from ..user_module.inputs import Args, Kwargs, declared_inputs, fill, inputs_name, resize
from ..user_module.loading import build, import_seconds, load_module
from . import open_steps as steps
from . import task_checks as checks
from .buffer_state import BufferState
from .held_out import held_out_dims
from .index_guard import may_refuse
from .index_inputs import in_range, index_bounds
from .reference64 import float64_arithmetic, float64_copy, upcast
from .tensor_cores import ChannelsLastConvolutions, may_use_tensor_cores, products_in_tf32

#: Replaces each tensor in the template of the inputs.
TENSOR = object()
#: Errors of a module that cannot run in float64, because an operator or memory is missing.
NOT_IN_FLOAT64 = (TaskError, RuntimeError, TypeError, ValueError, AttributeError)


@dataclass
class OpenTask:
    """A module (`model`) that is ready to be judged.

    `template` is (args, kwargs) of the first workload with `TENSOR` in place of each tensor. `dims` are the sizes of
    the graph's free dimensions at the first workload, `workload_dims` at each. `input_names` are the graph names of the
    tensor inputs in the order of the call, also of those that the graph does not read. `out_specs` has dtype, shape and
    strides (expressions, None where contiguous) of each output. `ranges` are the sizes for which the graph is valid.
    `held` are the buffers that forward changes. `reference_is_float64` becomes False once `call64` cannot use float64.
    `guarded`: calls on a GPU check indices first. `avoid` names inputs with which the module broke the device of an
    earlier worker. `compiled_on_tensor_cores`: torch.compile may compute convolutions in TF32 that eager mode computes
    in float32.
    """

    task: dict[str, Any]
    device: str
    module: ModuleType
    model: torch.nn.Module
    traced: ExportedModule
    template: tuple[Args, Kwargs]
    workload_dims: tuple[dict[str, int], ...]
    out_specs: list[dict[str, Any]]
    facts: dict[str, Any]
    held: BufferState = field(default_factory=BufferState)
    reference_is_float64: bool = True
    guarded: bool = True
    avoid: frozenset[str] = frozenset()
    compiled_on_tensor_cores: bool = False
    _float64: torch.nn.Module | None = None

    @property
    def graph(self) -> dict[str, Any]:
        return self.traced.graph

    @property
    def dims(self) -> dict[str, int]:
        return dict(self.traced.graph["dims"])

    @property
    def ranges(self) -> dict[str, tuple[int, int | None]]:
        return self.traced.ranges

    @property
    def input_names(self) -> list[str]:
        return [f"x{index}" for index in range(len(self.traced.input_specs))]

    def flatten(self, args: Args, kwargs: Kwargs) -> list[torch.Tensor]:
        """Returns the tensors of a call's arguments in the order of `input_names`."""
        return steps.tensors_of((args, kwargs))

    def unflatten(self, tensors: Sequence[torch.Tensor]) -> tuple[Args, Kwargs]:
        """Returns (args, kwargs) of a call with these tensors, in the order of `input_names`; other arguments are as
        declared."""
        positional, named = self.template
        if not named and all(leaf is TENSOR for leaf in positional):
            return tuple(tensors), {}
        waiting = iter(tensors)
        args, kwargs = pytree.tree_map(lambda leaf: next(waiting) if leaf is TENSOR else leaf, self.template)
        return args, kwargs

    def call(self, args: Args, kwargs: Kwargs) -> tuple[torch.Tensor, ...]:
        """Calls the module without gradients. Returns its tensor outputs in pytree order, followed by the new values of
        the buffers that it changes. Not for timing: time `model` itself."""
        return self._run(self.model, args, kwargs)

    def inputs(
        self, workload: int, seed: int, variant: str = "declared", dims: Mapping[str, int] | None = None
    ) -> tuple[Args, Kwargs]:
        """Returns (args, kwargs) of workload number `workload`. `variant` is the kind of values: "declared", or a name
        such as "normal" (`VARIANTS` in user_module/inputs.py) for random values in floating inputs; `dims` overrides
        the sizes of some or all free dimensions."""
        args, kwargs = declared_inputs(self.module, self.task, self.model.forward, workload, seed, self.device)
        if variant == "declared" and not dims:
            return args, kwargs
        declared = self.workload_dims[workload]
        sizes = {**declared, **(dims or {})}
        tensors = self.flatten(args, kwargs)
        del args, kwargs  # so that each declared tensor is freed as soon as its successor is made
        for index, spec in enumerate(self.traced.input_specs):
            own_seed = _mixed(seed, index)
            resized = resize(tensors[index], spec, sizes, own_seed)
            bounds = self._index_bounds.get(self.input_names[index])
            if bounds and sizes != declared:
                resized = in_range(tensors[index], resized, bounds, sizes, declared)
            tensors[index] = fill(resized, variant, own_seed)
        return self.unflatten(tensors)

    @cached_property
    def _index_bounds(self) -> dict[str, list[Any]]:
        return index_bounds(self.graph)

    def held_out_dims(self) -> list[dict[str, int]]:
        """Returns sizes of the free dimensions, as {name: size}, other than the declared ones (1, odd, ×1.5) at which
        both the module and its graph run and agree."""
        return held_out_dims(
            self.model, self.call, self.traced, lambda dims: self.inputs(0, self.task["seed"], dims=dims), self.avoid
        )

    def constants(self) -> dict[str, torch.Tensor]:
        """Returns the parameters and buffers that the graph reads, by their names in the graph, with their current
        values; buffers that forward changes have the values with which every call begins. Raises TaskError
        (forward_failed) if the module has lost one."""
        self.held.rewind(self.model)
        held = {
            **dict(self.model.named_parameters(remove_duplicate=False)),
            **dict(self.model.named_buffers(remove_duplicate=False)),
        }
        values = {}
        for name, (_, path, tensor) in self.traced.constants.items():
            value = held.get(path, tensor)
            if value is None:
                raise TaskError("forward_failed", f"the module has no {path} any more", steps.FORWARD_HINT)
            values[name] = value.detach()
        return values

    def settle(self) -> None:
        """Waits until the device has finished its work."""
        if self.device != "cpu":
            torch.cuda.synchronize()

    def float64_model(self) -> torch.nn.Module:
        """Returns a float64 copy of the module, which is made once. Raises what the module's own deepcopy raises."""
        if self._float64 is None:
            self._float64 = float64_copy(self.model)
        return self._float64

    def call64(self, args: Args, kwargs: Kwargs) -> tuple[torch.Tensor, ...]:
        """Returns the outputs of the module in float64 arithmetic; floating outputs are float64, others keep their
        type.

        If the module cannot run in float64, or memory is missing, it runs in its own dtype (the outputs are then
        converted), and `reference_is_float64` becomes False.
        """
        if self.reference_is_float64:
            try:
                outputs = self._call64(args, kwargs)
            except NOT_IN_FLOAT64 as error:
                self.facts["float64_failure"] = first_line(error)
                self.reference_is_float64 = False
            else:
                self.reference_is_float64 = _all_float64(outputs)
                if self.reference_is_float64:
                    return outputs
            self._float64 = None
        return tuple(upcast(output) for output in self.call(args, kwargs))

    def exact(self, args: Args, kwargs: Kwargs) -> tuple[torch.Tensor, ...] | None:
        """Returns the outputs in float64 arithmetic as `call64` does, but None if the module cannot run in float64 now;
        `reference_is_float64` does not change."""
        if not self.reference_is_float64:
            return None
        try:
            return self._call64(args, kwargs)
        except NOT_IN_FLOAT64:
            return None

    def on_tensor_cores(self, args: Args, kwargs: Kwargs) -> tuple[torch.Tensor, ...] | None:
        """Returns the outputs as `call` does, but with convolutions computed as torch.compile computes them; with
        numerics `paper` on a GPU, all products are in TF32 too. None if eager mode computes in that way anyway, or if
        the call fails, for example for lack of memory."""
        in_tf32 = self.task["numerics"] == "paper" and self.device.startswith("cuda")
        if not (in_tf32 or self.compiled_on_tensor_cores):
            return None
        try:
            with ExitStack() as changes:
                if in_tf32:
                    changes.enter_context(products_in_tf32())
                if self.compiled_on_tensor_cores:
                    changes.enter_context(ChannelsLastConvolutions())  # type: ignore[no-untyped-call]
                return self.call(args, kwargs)
        except (TaskError, RuntimeError):
            return None

    def _call64(self, args: Args, kwargs: Kwargs) -> tuple[torch.Tensor, ...]:
        held = self.facts["parameter_bytes"] + sum(tensor.nbytes for tensor in self.flatten(args, kwargs))
        require_bytes(2 * held + 2 * checks.largest_value_bytes(self.traced.program), self.device, "a float64 run")
        with float64_arithmetic():
            args, kwargs = upcast((args, kwargs))
            return self._run(self.float64_model(), args, kwargs)

    def _run(self, model: torch.nn.Module, args: Args, kwargs: Kwargs) -> tuple[torch.Tensor, ...]:
        return self.held.call(model, lambda: steps.run_forward(model, args, kwargs, self.task["path"], self.guarded))


def open_task(
    task: dict[str, Any], device: str, module: ModuleType | None = None, avoid: Sequence[str] = ()
) -> OpenTask:
    """Opens `task` (a KernelTask as builtins) on `device` ("cpu", "cuda:0"); `module` is its module if the file is
    imported already. `avoid` names inputs that broke the device of an earlier worker.

    If one graph cannot represent all recorded calls, only the first, which took most time, is kept: a scan recorded
    them, and no user chose them to belong together. Raises TaskError for whatever is wrong with the file, the class or
    its inputs, or with torch on this machine.
    """
    try:
        return _open(task, device, module, avoid)
    except TaskError as error:
        if error.kind != "unsupported_input" or task["source"] != "recorded" or len(task["workloads"]) < 2:
            raise
    return _open({**task, "workloads": task["workloads"][:1]}, device, module, avoid)


def _open(task: dict[str, Any], device: str, module: ModuleType | None, avoid: Sequence[str]) -> OpenTask:
    steps.check_machine(device)
    module = module or load_module(task)
    model = build(module, task, device)
    seed = task["seed"]
    calls = [declared_inputs(module, task, model.forward, i, seed, device) for i in range(len(task["workloads"]))]
    for args, kwargs in calls:
        checks.check_signature(model, args, kwargs)
    free = steps.free_dims(calls, task)
    program = steps.first_export(model, calls[0], free)
    if program is not None:
        # Checked before the first real run: if an intermediate value does not fit, the system would kill the process.
        require_bytes(checks.largest_value_bytes(program), device, f"a value inside {task['class_name']}.forward")
    outputs, held, observed = steps.observe(model, calls[0], program, task)
    effects = observed["side_effects"]
    traced = steps.matching_trace(model, calls[0], outputs, program, free, held, task["path"], effects)
    checks.check_held_by_module(traced.foreign, task["class_name"])
    state = held.facts(len(outputs))
    outputs = (*outputs, *held.new_values())
    opened = OpenTask(
        task=task,
        device=device,
        module=module,
        model=model,
        traced=traced,
        template=pytree.tree_map(lambda leaf: TENSOR if isinstance(leaf, torch.Tensor) else leaf, calls[0]),
        workload_dims=steps.workload_dims(calls, traced, task),
        out_specs=traced.out_specs,
        facts={**observed, **steps.static_facts(model, calls[0], outputs, traced), "state": state},
        held=held,
        guarded=may_refuse(program),
        avoid=frozenset(avoid),
        compiled_on_tensor_cores=may_use_tensor_cores(traced.program, device),
    )
    for args, kwargs in calls[1:]:
        opened.call(args, kwargs)
    opened.facts["import_seconds"] = import_seconds(task["path"])
    opened.facts["constant_output"] = _is_constant(opened, calls[0], outputs)
    return opened


def _mixed(seed: int, index: int) -> int:
    """Returns a seed for input number `index`. Each input has its own, because equal values in two inputs would hide a
    kernel that mixes the inputs up."""
    return (seed * 1_000_003 + index) % 2**63


def _is_constant(opened: OpenTask, call: tuple[Args, Kwargs], outputs: Sequence[torch.Tensor]) -> bool:
    """Whether other inputs of the same sizes give bit-equal outputs; False if the module does not accept other inputs,
    or if its other inputs would be equal to those of `call`."""
    name = inputs_name(0, "normal")
    if name in opened.avoid:
        return False
    try:
        with with_inputs(name):
            other = opened.inputs(0, opened.task["seed"] + 1, "normal")
            if all(map(checks.same, opened.flatten(*call), opened.flatten(*other))):
                return False
            return all(map(checks.same, outputs, opened.call(*other)))
    except TaskError:
        return False


def _all_float64(outputs: Sequence[torch.Tensor]) -> bool:
    return all(output.dtype == torch.float64 for output in outputs if output.is_floating_point())
