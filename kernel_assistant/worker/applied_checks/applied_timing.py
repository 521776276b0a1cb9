"""Times a user's class without kernels against the same class with applied kernels. The times include the guard (the
check before each call) and the operator through which torch.compile calls the kernels.

This is the last measurement before a result is accepted. In one process, with the user's ordinary allocator, it times
several sizes, and the module inside a compiled parent. The declared size comes first and has the full number of rounds
(a round times both versions once); without a gain there, the rest is not measured. The other rows only need a good
estimate, for which twelve rounds suffice; as many rows are measured as the time allows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

import torch

from ..applied.strided import copied, copy_as_it_lies, span
from ..device_lock import DeviceLock
from ..measuring.compiled import NotCompiledError, compiled_call
from ..measuring.passes import beside
from ..measuring.repeated_measurement import LEAST_EFFECT, until_clear
from ..measuring.statistics import median
from ..measuring.task_sets import LEAST_FOOTPRINT
from ..measuring.tiers.full_tier import MOST_SECONDS, ROUNDS
from ..measuring.timing import LEAST_ROUNDS, Series, TorchSubject
from ..opening.open_task import OpenTask, open_task
from ..process.time_limit import LimitReached, within
from ..user_module.containers import known_to_pytree
from ..user_module.inputs import Args, Kwargs
from ..verifying.choice_bounds import part_chosen
from ..verifying.numerics import compare
from .applied_forms import counters
from .in_place import put_in

MOST_CALLS = 512
#: Seconds of the limit that are left for the answer.
ANSWER_SECONDS = 1.0
Calls = list[tuple[Args, Kwargs]]


class ParentModule(torch.nn.Module):
    """Calls `child` with operators of its own before and after it, as in a user's model: torch.compile can then fuse
    these with the child's operators."""

    def __init__(self, child: torch.nn.Module) -> None:
        super().__init__()
        self.child = child

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return torch.utils._pytree.tree_map(_after, self.child(*map(_before, args), **kwargs))


def _before(value: Any) -> Any:
    return value * 1.5 if _floats(value) else value


def _after(value: Any) -> Any:
    return value + 1.0 if _floats(value) else value


def _parents_exact(opened: OpenTask, args: Args, kwargs: Kwargs) -> tuple[torch.Tensor, ...] | None:
    """Returns the outputs of `ParentModule` around the module in float64; None if the module cannot run in float64."""
    outputs = opened.exact(tuple(map(_before, args)), kwargs)
    return None if outputs is None else tuple(map(_after, outputs))


def time_applied(params: dict[str, Any], module: ModuleType | None = None) -> dict[str, Any]:
    """Times the class without and with kernels. In `params`, `task` is the original, `applied` the edited text of the
    same file at the path `edited`, `package` the folder of the kernels, and `limit` the seconds for all measurements.
    `module` is the original's module if it is imported already.

    Returns a dict with `rows`, as many as could be measured within the limit. Each row has `name`, `dims`, `elements`
    (of all inputs), `original_ms`, `applied_ms`, `speedup`, `speedup_ci` (its 99.9% interval), and `equal`. The dict
    also has, for the declared size, `kernel_calls` (number of calls that ran kernels) and `fallbacks` (reason → number
    of calls that ran the original forward).
    """
    ends = time.monotonic() + params["limit"] - ANSWER_SECONDS
    task = params["task"]
    device = f"cuda:{params['device']}" if task["target"] == "cuda" else "cpu"
    opened = open_task(task, device, module)
    applied = put_in(opened, params, device)
    cache_bytes = params["cache_bytes"]
    with torch.no_grad():
        rows = [row_alone(opened, applied, cache_bytes, time.monotonic() + params.get("seconds", 0.0))]
        counted = counters(params["package"]).get(task["class_name"], {})
        served = {"kernel_calls": counted.get("kernel", 0), "fallbacks": counted.get("fallbacks", {})}
        if not rows[0]["equal"] or rows[0]["speedup_ci"][1] < LEAST_EFFECT:
            return {"rows": rows, **served}
        with suppress(LimitReached), within(ends - time.monotonic()):
            _add_further_rows(rows, opened, applied, cache_bytes, only_declared=params.get("sizes") == "declared")
    return {"rows": rows, **served}


def _add_further_rows(
    rows: list[dict[str, Any]], opened: OpenTask, applied: torch.nn.Module, cache_bytes: int, only_declared: bool
) -> None:
    _start_equal(opened, applied)
    rows.append(_row(opened, opened.model, applied, None, "unaligned", cache_bytes, ROUNDS[opened.task["target"]]))
    # Kernels that are correct at the declared sizes only are never run at others.
    for dims in [] if only_declared else opened.held_out_dims():
        _start_equal(opened, applied)
        rows.append(_row(opened, opened.model, applied, dims, "alone", cache_bytes, LEAST_ROUNDS))
    pair = (torch.compile(ParentModule(opened.model)), torch.compile(ParentModule(applied)))
    _start_equal(opened, applied)
    # What torch.compile cannot compile, or not in time, has no such row: the original runs inside a compiled parent.
    with suppress(NotCompiledError):
        compiled_call(lambda: rows.append(_row(opened, *pair, None, "compiled parent", cache_bytes, LEAST_ROUNDS)))


def row_alone(
    opened: OpenTask, applied: torch.nn.Module, cache_bytes: int, until: float | None = None
) -> dict[str, Any]:
    """Times both modules at the declared sizes, without a compiled parent; returns a row as `time_applied` describes
    it. An unclear result is measured again if the repetition should end before `until` (a time of `time.monotonic`;
    None: no repetition)."""
    with torch.no_grad():
        _start_equal(opened, applied)
        rounds = ROUNDS[opened.task["target"]]
        return _row(opened, opened.model, applied, None, "alone", cache_bytes, rounds, until)


def _start_equal(opened: OpenTask, applied: torch.nn.Module) -> None:
    """Gives the buffers that forward changes the same first values in both modules."""
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
    until: float | None = None,
) -> dict[str, Any]:
    """Times both modules at the sizes `dims` (None: the declared ones); returns a row as `time_applied` describes it.
    With `until`, an unclear interval is measured again, as long as the time of `time.monotonic` is before `until`."""
    calls = _calls(opened, dims, cache_bytes, _unaligned if name == "unaligned" else copied)
    exact = _parents_exact if name == "compiled parent" else OpenTask.exact
    equal = same_values(opened, original, applied, calls[0], exact)
    target = opened.task["target"]
    before, after = TorchSubject("original", original, calls, target), TorchSubject("applied", applied, calls, target)

    def measure() -> Series:
        return beside(
            target, after, [before], sets=len(calls), rounds=rounds, most_seconds=MOST_SECONDS, lock=DeviceLock()
        )

    series, (speedup, low, high) = until_clear(measure, "original", "applied", until)
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


def _calls(
    opened: OpenTask, dims: dict[str, int] | None, cache_bytes: int, again: Callable[[torch.Tensor], torch.Tensor]
) -> Calls:
    """Returns copies of one call's inputs as (args, kwargs), at the sizes `dims` (None: the declared ones); `again`
    copies a tensor. Together they exceed the cache four times, but there are at least 2 and at most 512."""
    first = opened.inputs(0, opened.task["seed"], "declared", dims)
    size = max(sum(tensor.numel() * tensor.element_size() for tensor in opened.flatten(*first)), 1)
    count = max(2, min(MOST_CALLS, max(4 * cache_bytes, LEAST_FOOTPRINT) // size + 1))
    copies = [[again(tensor) for tensor in opened.flatten(*first)] for _ in range(count)]
    return [opened.unflatten(tensors) for tensors in copies]


def _unaligned(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy that begins one element after an aligned address, as a slice of a larger tensor may."""
    room = torch.empty(span(tensor) + 1, dtype=tensor.dtype, device=tensor.device)
    copy = room.as_strided(tensor.shape, tensor.stride(), 1)
    copy_as_it_lies(copy, tensor)
    return copy


def same_values(
    opened: OpenTask,
    original: Callable[..., Any],
    applied: Callable[..., Any],
    call: tuple[Args, Kwargs],
    exact: Callable[[OpenTask, Args, Kwargs], tuple[torch.Tensor, ...] | None] = OpenTask.exact,
) -> bool:
    """Whether both modules return the same outputs for one call and leave the same values in the buffers that forward
    changes: within the task's error policy (`numerics`), or within a hundredth of the largest value.

    If a module magnifies rounding, two correct results differ by more. Then the result of the kernels is compared with
    `exact`, the outputs in float64, by the judge's rule, which takes PyTorch's own error into account.
    """
    args, kwargs = call
    results = [model(*args, **kwargs) for model in (original, applied)]
    known_to_pytree(results)
    wanted, got = (opened.flatten((result,), {}) for result in results)
    if opened.held and isinstance(original, torch.nn.Module) and isinstance(applied, torch.nn.Module):
        wanted, got = [*wanted, *original.buffers()], [*got, *applied.buffers()]
    numerics = opened.task["numerics"]
    pairs = list(zip(got, wanted, strict=True))
    if all(
        _are_close(mine, theirs, numerics)
        or (not _floats(mine) and part_chosen(opened, call, position, theirs, mine.flatten(), 0))
        for position, (mine, theirs) in enumerate(pairs)
    ):
        return True
    want = exact(opened, args, kwargs)
    if want is None or [one.shape for one in want] != [one.shape for one in wanted]:
        return False
    return all(compare(mine, theirs, right, numerics).passed for (mine, theirs), right in zip(pairs, want, strict=True))


def _are_close(mine: torch.Tensor, theirs: torch.Tensor, numerics: str) -> bool:
    right = theirs.double() if theirs.dtype.is_floating_point else theirs
    if compare(mine, theirs, right, numerics).passed:
        return True
    return torch.allclose(mine, theirs, rtol=1e-2, atol=1e-2 * float(theirs.abs().max()))


def _floats(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point
