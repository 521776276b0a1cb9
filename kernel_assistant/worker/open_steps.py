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

from . import task_checks as checks
from .applied.attributes import module_attributes
from .applied.binaries import instruction_flags
from .applied.calls import describe_arguments, describe_result
from .containers import known_to_pytree
from .export import Free, Traced, default_free, export_program, read_program, trace
from .graph_writer import is_contiguous
from .held_state import HeldState, repeated
from .inputs import DTYPES, Args, Kwargs
from .symbols import evaluate_size, solve_dims
from .worker_errors import SMALLER, TaskError, first_line, is_out_of_memory, user_code

MINIMUM_TORCH = (2, 9)
FORWARD_HINT = "mend forward or the declared inputs so that the module runs in plain PyTorch"

Call = tuple[Args, Kwargs]


def check_machine(device: str) -> None:
    """Raise torch_too_old or no_gpu. A GPU becomes the current one: what names none, events and `.cuda()`, means it."""
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
    """Dimension 0 of each tensor, and those in which the workloads differ. Raises unsupported_input where they
    differ in anything but sizes: one graph has to stand for all of them."""
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
    """An export before the first run, None where that does not work: `matching_trace` tries again and tells why."""
    tensors = [*model.parameters(), *model.buffers()]
    if any(is_lazy(tensor) for tensor in tensors):
        return None
    for wanted in (free, [frozenset[int]()] * len(free)):
        with contextlib.suppress(Exception):
            return export_program(model, *call, wanted)
    return None


def observe(
    model: torch.nn.Module, call: Call, program: ExportedProgram | None, task: dict[str, Any]
) -> tuple[tuple[torch.Tensor, ...], HeldState, dict[str, Any]]:
    """Run twice → (outputs, what forward changes, facts).

    Raises forward_failed, mutates_inputs, unsupported_output, nondeterministic."""
    name = type(model).__name__
    watch = checks.Unchanged(tensors_of(call))
    started = time.perf_counter()
    result = run_module(model, *call, task["path"])
    seconds = time.perf_counter() - started
    outputs = checks.tensor_outputs(result, name)
    checks.check_inputs_unchanged(watch, name)
    held, one, other = repeated(model, outputs, lambda: run_forward(model, *call, task["path"]))
    equal_bits = checks.check_repeats(one, other, name, program)
    facts = {"eager_first_call_seconds": seconds, "deterministic": True, "bit_reproducible": equal_bits}
    return outputs, held, {**facts, "result": describe_result(result, type(model).__module__)}


def matching_trace(
    model: torch.nn.Module,
    call: Call,
    outputs: Sequence[torch.Tensor],
    program: ExportedProgram | None,
    free: Free,
    held: HeldState,
) -> Traced:
    """A trace whose outputs are those of the real run: of `program`, a new one, or one without free dimensions.

    It changes what `held` says. Raises TaskError, mutates_inputs where no trace does.
    """
    if program is not None:
        with contextlib.suppress(Exception):
            traced = read_program(program, *call)
            if _fits(traced, outputs, held):
                return traced
    name = type(model).__name__
    try:
        for wanted in (free, [frozenset[int]()] * len(free)):
            traced = trace(model, *call, wanted)
            if _fits(traced, outputs, held):
                return traced
    except TaskError as error:
        raise TaskError(error.kind, f"{name}: {error.message}", error.next_step, error.detail) from error
    except Exception as error:
        kind = "out_of_memory" if is_out_of_memory(error) else "forward_failed"
        raise TaskError(
            kind,
            f"torch.export cannot trace {name}.forward: {first_line(error)}",
            SMALLER if kind == "out_of_memory" else "take branches and sizes that depend on values out of forward",
            checks.traceback_text(error),
        ) from error
    if held:
        raise TaskError(
            "mutates_inputs",
            f"{name}.forward changes its own {next(iter(held.values))} in a way that its trace does not show",
            "evaluate it in a mode that changes nothing (eval), or move the update out of forward",
        )
    raise TaskError(
        "forward_failed", f"{name}.forward gives other shapes when traced than when run", "make its shapes fixed"
    )


def run_forward(model: torch.nn.Module, args: Args, kwargs: Kwargs, path: str) -> tuple[torch.Tensor, ...]:
    """One call without gradients → tensor outputs. Raises forward_failed, out_of_memory or unsupported_output."""
    return checks.tensor_outputs(run_module(model, args, kwargs, path), type(model).__name__)


def run_module(model: torch.nn.Module, args: Args, kwargs: Kwargs, path: str) -> Any:
    """One call without gradients → what forward returns. Raises forward_failed or out_of_memory."""
    name = type(model).__name__
    with user_code("forward_failed", f"{name}.forward", FORWARD_HINT, path), torch.no_grad():
        result = model(*args, **kwargs)
        known_to_pytree(result)
        if any(tensor.is_cuda for tensor in tensors_of(result)):
            torch.cuda.synchronize()  # a kernel of the module that fails does so here
    return result


def workload_dims(calls: Sequence[Call], traced: Traced, task: dict[str, Any]) -> tuple[dict[str, int], ...]:
    """The free dimensions of each workload. Raises unsupported_input for one that the graph does not hold for."""
    found = []
    for entry, call in zip(task["workloads"], calls, strict=True):
        try:
            found.append(_dims_of(tensors_of(call), traced))
        except ValueError as error:
            shapes = ", ".join(str(list(tensor.shape)) for tensor in tensors_of(call))
            raise TaskError(
                "unsupported_input",
                f"workload {entry['name']} of {task['class_name']} has shapes {shapes}, which the graph traced for "
                f"{task['workloads'][0]['name']} does not cover ({error})",
                "vary only sizes that forward treats alike, or optimize the workloads one by one",
            ) from error
    return tuple(found)


def real_specs(traced: Traced, outputs: Sequence[torch.Tensor]) -> list[dict[str, Any]]:
    """Output specs with the strides that the real run gave, where the trace's are others (a device's own layouts)."""
    return [_real_spec(spec, tensor, traced) for spec, tensor in zip(traced.out_specs, outputs, strict=True)]


def static_facts(model: torch.nn.Module, call: Call, outputs: Sequence[torch.Tensor], traced: Traced) -> dict[str, Any]:
    """Counts and bytes; `ranges` are [lowest, highest or None] of each free dimension; what a guard checks."""
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


def _fits(traced: Traced, outputs: Sequence[torch.Tensor], held: HeldState) -> bool:
    dims = traced.graph["dims"]
    if not held.agrees(traced.written, traced.added):
        return False
    every = [*outputs, *held.new_values()]
    return len(every) == len(traced.out_specs) and all(
        spec["dtype"] == DTYPES[tensor.dtype]
        and [evaluate_size(size, dims) for size in spec["shape"]] == list(tensor.shape)
        for spec, tensor in zip(traced.out_specs, every, strict=True)
    )


def _dims_of(tensors: Sequence[torch.Tensor], traced: Traced) -> dict[str, int]:
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


def strides_fit(spec: dict[str, Any], tensor: torch.Tensor, dims: dict[str, int]) -> bool:
    """Whether `tensor` lies in memory as `spec` says at `dims`; strides of dimensions of size 1 do not count."""
    if spec["strides"] is None:
        return is_contiguous(tensor.shape, tensor.stride())
    wanted = [evaluate_size(stride, dims) for stride in spec["strides"]]
    rows = zip(tensor.shape, tensor.stride(), wanted, strict=True)
    return tensor.numel() == 0 or all(size == 1 or one == other for size, one, other in rows)


def _real_spec(spec: dict[str, Any], tensor: torch.Tensor, traced: Traced) -> dict[str, Any]:
    if strides_fit(spec, tensor, traced.graph["dims"]):
        return spec
    strides = None if is_contiguous(tensor.shape, tensor.stride()) else [str(stride) for stride in tensor.stride()]
    return {**spec, "strides": strides}
