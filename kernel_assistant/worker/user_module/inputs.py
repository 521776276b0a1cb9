"""Makes the inputs of a workload (one set of input shapes of a task): the declared values, other values in the same
shapes, or values of the same kind in other shapes."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..applied.strided import laid_out
from ..process.memory import MemoryGuard, require_bytes
from ..process.worker_errors import TaskError, user_code
from ..symbols import evaluate_size
from .containers import known_to_pytree
from .loading import evaluate, seed_everything
from .recorded import recorded_calls

Args = tuple[Any, ...]
Kwargs = dict[str, Any]

#: What fills floating tensors, by variant; "declared" keeps the user's own values.
_FILLERS: dict[str, Callable[[torch.Tensor, torch.Generator], torch.Tensor]] = {
    "normal": lambda empty, generator: empty.normal_(0.0, 1.0, generator=generator),
    "x10": lambda empty, generator: empty.normal_(0.0, 1.0, generator=generator).mul_(10),
    "shifted": lambda empty, generator: empty.normal_(0.0, 1.0, generator=generator).add_(5),
    "zeros": lambda empty, generator: empty.zero_(),
    "ones": lambda empty, generator: empty.fill_(1),
}
VARIANTS = ("declared", *_FILLERS)

#: dtypes of `records/graph.py`.
DTYPES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "b1",
}
_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device)


def inputs_name(
    workload: int, variant: str, dims: Sequence[tuple[str, int]] | None = None, reweighted: bool = False
) -> str:
    """Returns the name of inputs in messages and jobs. `dims` are other sizes than the declared ones; `reweighted`
    means that parameters are changed too. The name does not depend on the seed."""
    sizes = "" if dims is None else " " + ",".join(f"{name}={size}" for name, size in dims)
    return f"workload {workload} {variant}{sizes}{' reweighted' if reweighted else ''}"


def declared_inputs(
    module: ModuleType, task: dict[str, Any], forward: Callable[..., Any], workload: int, seed: int, device: str
) -> tuple[Args, Kwargs]:
    """Makes the inputs (args, kwargs) of workload number `workload` on `device` as the task declares them, with all
    generators seeded. Tensors are detached.

    Keyword arguments are in the order of the signature of `forward`, not in that of the declaration. Raises TaskError
    no_inputs, unsupported_input or out_of_memory.
    """
    entry = task["workloads"][workload]
    what = f"making the inputs of {task['class_name']} (workload {entry['name']})"
    hint = "mend the declared inputs: they are a tuple of arguments, e.g. inputs=(torch.randn(8, 1024),)"
    seed_everything(seed)
    with user_code("no_inputs", what, hint, task["path"]), MemoryGuard(device, what), torch.device(device):
        args, kwargs = _arguments(module, task, entry)
        known_to_pytree((args, kwargs))
        args, kwargs = pytree.tree_map(lambda leaf: _on_device(leaf, device), (args, _in_order(forward, args, kwargs)))
    _check_leaves(args, kwargs, task)
    return args, kwargs


def fill(tensor: torch.Tensor, variant: str, seed: int) -> torch.Tensor:
    """Returns a tensor with new random values of the kind `variant` (a key of `_FILLERS`, such as "normal"), and the
    shape, dtype and strides of `tensor`. Returns `tensor` itself if it is not floating, or if `variant` is
    "declared"."""
    if variant == "declared" or not tensor.is_floating_point():
        return tensor
    require_bytes(tensor.nbytes, str(tensor.device), f"an input with {variant} values")
    generator = torch.Generator(tensor.device).manual_seed(seed)
    # A dimension of stride 0 holds one element: fill that and expand it again.
    shape = [1 if stride == 0 else size for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    empty = torch.empty_strided(shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return _FILLERS[variant](empty, generator).expand(tensor.shape)


def resize(tensor: torch.Tensor, spec: Mapping[str, Any], dims: Mapping[str, int], seed: int) -> torch.Tensor:
    """Returns `tensor` with the shape and strides that `spec` (a TensorSpec) has at the sizes `dims`; a tensor that has
    the shape already is returned as it is.

    Missing rows are repeated; repeated floating rows are blended with another row by a random weight between 0.1 and
    0.9, so that no row is a copy, but positivity, order, row sums and masks of the declared values are kept.
    """
    shape = [evaluate_size(size, dims) for size in spec["shape"]]
    if list(tensor.shape) == shape:
        return tensor
    # Three times: the rows to add, the rows to blend them with, and the result.
    require_bytes(3 * tensor.element_size() * math.prod(shape), str(tensor.device), "an input at another size")
    generator = torch.Generator(tensor.device).manual_seed(seed)
    for dim, size in enumerate(shape):
        tensor = _resize_dim(tensor, dim, size, generator)
    strides = spec.get("strides")
    if strides is None:
        return tensor.contiguous()
    return laid_out(tensor, [evaluate_size(stride, dims) for stride in strides])


def _resize_dim(tensor: torch.Tensor, dim: int, size: int, generator: torch.Generator) -> torch.Tensor:
    rows = tensor.shape[dim]
    if size <= rows:
        return tensor.narrow(dim, 0, size)
    extra = torch.arange(rows, size, device=tensor.device) % rows
    more = tensor.index_select(dim, extra)
    if tensor.is_floating_point() and rows > 1:
        # An offset between 1 and rows-1 never selects the row itself.
        offset = torch.randint(1, rows, extra.shape, generator=generator, device=tensor.device)
        other = tensor.index_select(dim, (extra + offset) % rows)
        shape = [-1 if axis == dim else 1 for axis in range(tensor.dim())]
        weight = torch.rand(extra.shape, generator=generator, device=tensor.device).mul_(0.8).add_(0.1)
        mixed = torch.lerp(more, other, weight.view(shape).to(tensor.dtype))
        more = torch.where(mixed.isnan(), more, mixed)
    return torch.cat([tensor, more], dim)


def _arguments(module: ModuleType, task: dict[str, Any], entry: dict[str, Any]) -> tuple[Args, Kwargs]:
    recorded = recorded_calls(task["recording"], module) if task.get("recording") else None
    if not entry["args"] and not entry["kwargs"]:
        result = module.get_inputs() if hasattr(module, "get_inputs") else _missing(task)
        if isinstance(result, dict):
            return (), result
    else:
        result = evaluate(entry["args"], module, recorded) if entry["args"] else ()
    kwargs = evaluate(entry["kwargs"], module, recorded) if entry["kwargs"] else {}
    return tuple(result) if isinstance(result, (tuple, list)) else (result,), dict(kwargs)


def _missing(task: dict[str, Any]) -> Any:
    raise TaskError(
        "no_inputs",
        f"{os.path.basename(task['path'])} declares no inputs for {task['class_name']}",
        "put above the class: # kernel-assistant: inputs=(torch.randn(8, 1024),)",
    )


def _in_order(forward: Callable[..., Any], args: Args, kwargs: Kwargs) -> Kwargs:
    order = [name for name in inspect.signature(forward).parameters if name in kwargs]
    return {name: kwargs[name] for name in [*order, *(name for name in kwargs if name not in order)]}


def _on_device(leaf: Any, device: str) -> Any:
    return leaf.detach().to(device) if isinstance(leaf, torch.Tensor) else leaf


def _check_leaves(args: Args, kwargs: Kwargs, task: dict[str, Any]) -> None:
    for path, leaf in pytree.tree_flatten_with_path((args, kwargs))[0]:
        where = f"input {_label(path)} of {task['class_name']}"
        if isinstance(leaf, torch.Tensor):
            if leaf.layout != torch.strided or leaf.dtype not in DTYPES or leaf.is_quantized:
                raise TaskError(
                    "unsupported_input",
                    f"{where} is a {leaf.layout} tensor of {leaf.dtype}",
                    f"give dense tensors of {', '.join(str(dtype).removeprefix('torch.') for dtype in DTYPES)}",
                )
        elif not isinstance(leaf, _PLAIN):
            raise TaskError(
                "unsupported_input",
                f"{where} is a {type(leaf).__name__}",
                _without(type(leaf).__name__, task),
            )


def _without(kind: str, task: dict[str, Any]) -> str:
    """Returns the advice to a user whose inputs contain an object of the class `kind`: which values to give instead;
    for a recorded call, to leave the object out in the program."""
    if not task.get("recording"):
        return "give tensors, numbers, strings, None, and tuples, lists or dicts of them"
    return (
        f"call {task['class_name']} without the {kind} in the program (a cache: use_cache=False) and scan it again, or "
        "declare inputs without it above the class"
    )


def _label(path: Sequence[Any]) -> str:
    """Returns the path of a leaf in (args, kwargs) as users read it: `0`, `mask`, `1[0]`."""
    first, rest = path[1], path[2:]
    name = str(getattr(first, "key", getattr(first, "idx", first)))
    return name + "".join(str(part) for part in rest)
