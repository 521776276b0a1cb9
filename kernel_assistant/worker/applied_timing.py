"""Times a user's class as it was against the same class with a result applied: guard, operator and all.

The last measurement before a result is called one: several sizes, alone and inside a compiled parent, in one process
with the user's ordinary allocator. The declared size has the full number of rounds and comes first: where nothing is
gained there, the rest is not looked at. For the others the best estimate decides, which eleven rounds give.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .applied_forms import with_kernels
from .containers import known_to_pytree
from .device_lock import DeviceLock
from .inputs import Args, Kwargs
from .numerics import compare
from .open_task import OpenTask, open_task
from .profiling import BLOCK_SECONDS, LEAST_FOOTPRINT, MOST_SECONDS, ROUNDS
from .statistics import judged_interval, median
from .timing import LEAST_ROUNDS, SPIN_SECONDS, TorchSubject, alternate

MOST_CALLS = 512
Calls = list[tuple[Args, Kwargs]]


class Parent(torch.nn.Module):
    """A parent with work of its own before and after, as a user's model has."""

    def __init__(self, child: torch.nn.Module) -> None:
        super().__init__()
        self.child = child

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        args = tuple(value * 1.5 if _floats(value) else value for value in args)
        return torch.utils._pytree.tree_map(lambda out: out + 1.0 if _floats(out) else out, self.child(*args, **kwargs))


def time_applied(params: dict[str, Any]) -> dict[str, Any]:
    """Rows of original and applied milliseconds. `task` is the original, `applied` the edited text of the same file,
    `package` the folder of the kernels.

    Each row has `name`, `dims`, `elements` (of all inputs), both times, `speedup` with its 99.9% interval, and `equal`.
    """
    task = params["task"]
    device = f"cuda:{params['device']}" if task["target"] == "cuda" else "cpu"
    opened = open_task(task, device)
    applied = with_kernels(opened, params, device)
    cache_bytes = params["cache_bytes"]
    with torch.no_grad():
        rows = [row_alone(opened, applied, cache_bytes)]
        if not rows[0]["equal"] or rows[0]["speedup_ci"][0] <= 1.0:
            return {"rows": rows}
        for dims in opened.held_out_dims():
            _start_equal(opened, applied)
            rows.append(_row(opened, opened.model, applied, dims, "alone", cache_bytes, LEAST_ROUNDS))
        pair = (torch.compile(Parent(opened.model)), torch.compile(Parent(applied)))
        _start_equal(opened, applied)
        rows.append(_row(opened, *pair, None, "compiled parent", cache_bytes, LEAST_ROUNDS))
    return {"rows": rows}


def row_alone(opened: OpenTask, applied: torch.nn.Module, cache_bytes: int) -> dict[str, Any]:
    """The row of the declared size."""
    with torch.no_grad():
        _start_equal(opened, applied)
        return _row(opened, opened.model, applied, None, "alone", cache_bytes, ROUNDS[opened.task["target"]])


def _start_equal(opened: OpenTask, applied: torch.nn.Module) -> None:
    """Both with the buffers that every call of the judge begins with, where forward changes them."""
    for model in (opened.model, applied):
        opened.held.rewind(model)


def _row(
    opened: OpenTask,
    original: Callable[..., Any],
    applied: Callable[..., Any],
    dims: dict[str, int] | None,
    name: str,
    cache_bytes: int,
    rounds: int,
) -> dict[str, Any]:
    calls = _calls(opened, dims, cache_bytes)
    equal = same_values(opened, original, applied, calls[0])
    target = opened.task["target"]
    before, after = TorchSubject("original", original, calls, target), TorchSubject("applied", applied, calls, target)
    series = alternate(
        after,
        before,
        [],
        sets=len(calls),
        rounds=rounds,
        most_seconds=MOST_SECONDS,
        block_seconds=BLOCK_SECONDS[target],
        gap_seconds=SPIN_SECONDS if target == "cpu" else 0.0,
        lock=DeviceLock(),
    )
    speedup, low, high = judged_interval(series.ratios("original", "applied"))
    return {
        "name": name,
        "dims": dims or opened.dims,
        "elements": sum(tensor.numel() for tensor in opened.flatten(*calls[0])),
        "original_ms": median(series.seconds("original")) * 1e3,
        "applied_ms": median(series.seconds("applied")) * 1e3,
        "speedup": speedup,
        "speedup_ci": [low, high],
        "equal": equal,
    }


def _calls(opened: OpenTask, dims: dict[str, int] | None, cache_bytes: int) -> Calls:
    """Enough sets of inputs to exceed the cache four times, at most 512."""
    first = opened.inputs(0, opened.task["seed"], "declared", dims)
    size = max(sum(tensor.numel() * tensor.element_size() for tensor in opened.flatten(*first)), 1)
    count = max(2, min(MOST_CALLS, max(4 * cache_bytes, LEAST_FOOTPRINT) // size + 1))
    copies = [[tensor.clone() for tensor in opened.flatten(*first)] for _ in range(count)]
    return [opened.unflatten(tensors) for tensors in copies]


def same_values(
    opened: OpenTask, original: Callable[..., Any], applied: Callable[..., Any], call: tuple[Args, Kwargs]
) -> bool:
    """Whether both give the same for one call, and leave the same in the buffers that it changes, within the task's
    numerics or a hundredth of the largest value."""
    args, kwargs = call
    results = [model(*args, **kwargs) for model in (original, applied)]
    known_to_pytree(results)
    wanted, got = (opened.flatten((result,), {}) for result in results)
    if opened.held and isinstance(original, torch.nn.Module) and isinstance(applied, torch.nn.Module):
        wanted, got = [*wanted, *original.buffers()], [*got, *applied.buffers()]
    return all(
        compare(
            mine, theirs, theirs.double() if theirs.dtype.is_floating_point else theirs, opened.task["numerics"]
        ).passed
        or torch.allclose(mine, theirs, rtol=1e-2, atol=1e-2 * float(theirs.abs().max()))
        for mine, theirs in zip(got, wanted, strict=True)
    )


def _floats(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point
