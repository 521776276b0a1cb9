"""The steps of opening a task, in the order in which `open_task` takes them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from ..applied.attributes import module_attributes
from ..applied.binaries import instruction_flags
from ..applied.calls import describe_arguments, describe_result
from ..graph.export import ExportedModule, Free, default_free, export_program, read_program, trace
from ..graph.graph_limit import GraphTooLarge
from ..process import forks, stages
from ..process.worker_errors import TaskError, user_code
from ..symbols import evaluate_size, solve_dims
from ..user_module.containers import known_to_pytree
from ..user_module.inputs import DTYPES, Args, Kwargs
from . import task_checks as checks
from .buffer_state import BufferState, repeated
from .index_guard import guarded, may_refuse
from .never_runs import never_runs
from .output_layouts import strides_fit, with_real_outputs
from .side_effects import watched
from .trace_failure import trace_failure

MINIMUM_TORCH = (2, 9)
FORWARD_HINT = "mend forward or the declared inputs so that the module runs in plain PyTorch"

Call = tuple[Args, Kwargs]


def check_machine(device: str) -> None:
    """Raises TaskError (torch_too_old, no_gpu) if torch is too old, or if torch does not see the device. Makes the GPU
    the current one, for events and `.cuda()` without a device."""
    major, minor = torch.__version__.split(".")[:2]
    if (int(major), int(minor)) < MINIMUM_TORCH:
        raise TaskError("torch_too_old", f"torch {torch.__version__}, 2.9 or newer is needed", "upgrade torch")
    if device == "cpu":
        return
    seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (torch.device(device).index or 0) >= seen:
        cause = f"torch sees {seen} CUDA devices, {device} is none of them" if seen else "torch sees no CUDA device"
        raise TaskError("no_gpu", cause, "use --target cpu, or a CUDA build of torch and a GPU")
    torch.cuda.set_device(device)


def free_dims(calls: Sequence[Call], task: dict[str, Any]) -> Free:
    """Returns, for each tensor input, the dimensions whose sizes become symbolic: dimension 0, and those in which the
    workloads (sets of input shapes; one call for each) differ. Raises TaskError (unsupported_input) if they differ in
    anything but sizes, because one graph has to represent all of them."""
    free = [set(dims) for dims in default_free(*calls[0])]
    for entry, call in zip(task["workloads"][1:], calls[1:], strict=True):
        if _kinds(call) != _kinds(calls[0]):
            raise TaskError(
                "unsupported_input",
                f"workload {entry['name']} of {task['class_name']} differs from {task['workloads'][0]['name']} "
                "in more than tensor sizes",
                "keep structure, dtypes, ranks and numbers equal over workloads, or optimize them one by one",
            )
        for dims, one, other in zip(free, tensors_of(calls[0]), tensors_of(call), strict=True):
            dims |= {dim for dim in range(one.dim()) if one.shape[dim] != other.shape[dim]}
    return [frozenset(dims) for dims in free]


def first_export(model: torch.nn.Module, call: Call, free: Free) -> ExportedProgram | None:
    """Returns the program exported before forward is first run. `free` has the symbolic dimensions of each tensor
    input; if they do not work, sizes are fixed. None if the export fails: `matching_trace` then tries again and reports
    why. Raises GraphTooLarge."""
    tensors = [*model.parameters(), *model.buffers()]
    if any(is_lazy(tensor) for tensor in tensors):
        return None
    stages.begin("trace")
    for wanted in (free, [frozenset[int]()] * len(free)):
        # The first real run reports `sys.exit` as well.
        try:
            with forks.ended_here():
                return export_program(model, *call, wanted)
        except GraphTooLarge:
            raise
        except (Exception, SystemExit):  # noqa: BLE001 - it runs the user's forward
            continue
    return None


def observe(
    model: torch.nn.Module, call: Call, program: ExportedProgram | None, task: dict[str, Any]
) -> tuple[tuple[torch.Tensor, ...], BufferState, dict[str, Any]]:
    """Runs forward at least twice. Returns the outputs, the state of the buffers that forward changes, and a dict of
    facts about the calls, such as `side_effects` and `bit_reproducible`.

    Raises TaskError (forward_failed, out_of_memory, mutates_inputs, unsupported_output, nondeterministic).
    """
    name = type(model).__name__
    watch = checks.MutationCheck(tensors_of(call))
    guard = may_refuse(program)
    started = time.perf_counter()
    result = run_module(model, *call, task["path"], guard)
    seconds = time.perf_counter() - started
    outputs = checks.tensor_outputs(result, name)
    checks.check_inputs_unchanged(watch, name)
    attributes = module_attributes(model)
    effects: list[str] = []
    with watched(model, effects):
        held, one, other = repeated(model, outputs, lambda: run_forward(model, *call, task["path"], guard))
    equal_bits = checks.check_repeats(one, other, name, program, effects)
    facts: dict[str, Any] = {"eager_first_call_seconds": seconds, "deterministic": True, "bit_reproducible": equal_bits}
    facts |= {"side_effects": effects, "never_runs": never_runs(model, attributes, module_attributes(model))}
    return outputs, held, {**facts, "result": describe_result(result, type(model).__module__)}


def matching_trace(
    model: torch.nn.Module,
    call: Call,
    outputs: Sequence[torch.Tensor],
    program: ExportedProgram | None,
    free: Free,
    held: BufferState,
    path: str,
    effects: Sequence[str] = (),
) -> ExportedModule:
    """Returns a trace that changes the same buffers as `held`, and whose outputs have the dtypes and shapes of the real
    run's `outputs`. It is read from `program` if that fits, else from a new export, else from an export with fixed
    sizes.

    `path` is the module's file, `effects` are the side effects of a call. Raises TaskError, for example of the kind
    mutates_inputs if the module changes buffers and no trace fits.
    """
    if program is not None:
        with contextlib.suppress(Exception):
            traced = _fitting(read_program(program, *call), outputs, held)
            if traced is not None:
                return traced
    name = type(model).__name__
    try:
        for wanted in (free, [frozenset[int]()] * len(free)):
            traced = _fitting(trace(model, *call, wanted), outputs, held)
            if traced is not None:
                return traced
    except TaskError as error:
        raise TaskError(error.kind, f"{name}: {error.message}", error.next_step, error.detail) from error
    except Exception as error:
        raise trace_failure(error, name, path, checks.kept_attribute(effects)) from error
    if held:
        raise TaskError(
            "mutates_inputs",
            f"{name}.forward changes its own {next(iter(held.values))} in a way that its trace does not show",
            "evaluate it in a mode that changes nothing (eval), or move the update out of forward",
        )
    raise TaskError(
        "forward_failed", f"{name}.forward gives other shapes when traced than when run", "make its shapes fixed"
    )


def run_forward(
    model: torch.nn.Module, args: Args, kwargs: Kwargs, path: str, guard: bool = False
) -> tuple[torch.Tensor, ...]:
    """Calls forward once without gradients and returns its tensor outputs. Raises TaskError (forward_failed,
    out_of_memory, unsupported_output) or BrokenDevice."""
    return checks.tensor_outputs(run_module(model, args, kwargs, path, guard), type(model).__name__)


def run_module(model: torch.nn.Module, args: Args, kwargs: Kwargs, path: str, guard: bool = False) -> Any:
    """Calls forward once without gradients and returns its result. With `guard`, a GPU refuses indices that the CPU
    would refuse. Raises TaskError (forward_failed, out_of_memory) or BrokenDevice."""
    name = type(model).__name__
    checking = guarded(model, tensors_of((args, kwargs))) if guard else contextlib.nullcontext()
    with user_code("forward_failed", f"{name}.forward", FORWARD_HINT, path), torch.no_grad():
        with checking:
            result = model(*args, **kwargs)
        known_to_pytree(result)
        if any(tensor.is_cuda for tensor in tensors_of(result)):
            torch.cuda.synchronize()  # errors of the module's kernels are raised here
    return result


def workload_dims(calls: Sequence[Call], traced: ExportedModule, task: dict[str, Any]) -> tuple[dict[str, int], ...]:
    """Returns, for each workload, the sizes of the graph's free dimensions by name. Raises TaskError
    (unsupported_input) if the graph is not valid for one of the workloads."""
    dims_of_calls = []
    for entry, call in zip(task["workloads"], calls, strict=True):
        try:
            dims_of_calls.append(_dims_of(tensors_of(call), traced))
        except ValueError as error:
            shapes = ", ".join(str(list(tensor.shape)) for tensor in tensors_of(call))
            raise TaskError(
                "unsupported_input",
                f"workload {entry['name']} of {task['class_name']} has shapes {shapes}, which the graph traced for "
                f"{task['workloads'][0]['name']} does not cover ({error})",
                "vary only sizes that forward treats alike, or optimize the workloads one by one",
            ) from error
    return tuple(dims_of_calls)


def static_facts(
    model: torch.nn.Module, call: Call, outputs: Sequence[torch.Tensor], traced: ExportedModule
) -> dict[str, Any]:
    """Returns facts that do not depend on values: counts, bytes, `ranges` ([lowest, highest or None] of each free
    dimension), and the conditions that the guard checks before each call of applied kernels.
    """
    parameters = list(model.parameters())
    return {
        "parameters": sum(tensor.numel() for tensor in parameters),
        "parameter_bytes": sum(tensor.nbytes for tensor in [*parameters, *model.buffers()]),
        "input_bytes": sum(tensor.nbytes for tensor in tensors_of(call)),
        "output_bytes": sum(tensor.nbytes for tensor in outputs),
        "ops": len(traced.graph["nodes"]),
        "ranges": {name: list(bounds) for name, bounds in traced.ranges.items()},
        "attributes": module_attributes(model),
        "inputs": traced.input_specs,
        "call": describe_arguments(
            *call, [f"x{index}" for index in range(len(traced.input_specs))], type(model).__module__
        ),
        "cpu_flags": instruction_flags(),
        "versions": {"torch": torch.__version__, "cuda": torch.version.cuda or ""},
    }


def tensors_of(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _kinds(call: Call) -> tuple[Any, list[Any]]:
    leaves, tree = pytree.tree_flatten(call)
    kinds = [(leaf.dtype, leaf.dim()) if isinstance(leaf, torch.Tensor) else (type(leaf), leaf) for leaf in leaves]
    return tree, kinds


def _fitting(traced: ExportedModule, outputs: Sequence[torch.Tensor], held: BufferState) -> ExportedModule | None:
    """Returns the trace with the strides of the real run, whose results were `outputs`. None if the trace changes other
    buffers than `held`, or if its outputs have other dtypes or shapes than `outputs`, or cannot express their
    strides."""
    dims = traced.graph["dims"]
    if not held.agrees(traced.written, traced.added):
        return None
    every = [*outputs, *held.new_values()]
    same = len(every) == len(traced.out_specs) and all(
        spec["dtype"] == DTYPES[tensor.dtype]
        and [evaluate_size(size, dims) for size in spec["shape"]] == list(tensor.shape)
        for spec, tensor in zip(traced.out_specs, every, strict=True)
    )
    return with_real_outputs(traced, every) if same else None


def _dims_of(tensors: Sequence[torch.Tensor], traced: ExportedModule) -> dict[str, int]:
    pairs = [
        pair
        for tensor, spec in zip(tensors, traced.input_specs, strict=True)
        for pair in zip(spec["shape"], tensor.shape, strict=True)
    ]
    dims = solve_dims(pairs)
    for tensor, spec in zip(tensors, traced.input_specs, strict=True):
        if not strides_fit(spec, tensor, dims):
            raise ValueError(f"strides {list(tensor.stride())}")
    for name, (lowest, highest) in traced.ranges.items():
        if dims[name] < lowest or (highest is not None and dims[name] > highest):
            raise ValueError(f"{name} = {dims[name]}")
    return dims
