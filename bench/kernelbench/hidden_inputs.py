"""The stricter check of KernelBench-Verified (github.com/facebookresearch/kernel_bench_verified), by our own code.

A candidate has to be right on four distributions: the problem's own inputs, and their floating-point tensors times 3,
0.01 and -1. A distribution for which the reference gives no finite numbers does not count. Speed is compared with a
reference that may use TF32, `torch.set_float32_matmul_precision("high")`.
"""

from __future__ import annotations

import importlib
import io
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from bench.kernelbench.checkout import (
    SEED,
    TIMED_TRIALS,
    Asked,
    Pair,
    Row,
    device,
    finished,
    loaded,
    package,
    reference_times,
)

FACTORS = (1.0, 3.0, 0.01, -1.0)
#: Absolute and relative tolerance of KernelBench-Verified for float32; KernelBench's own is 1e-4.
LOOSER_TOLERANCE = 1e-3
#: What outputs of another shape or without a number would need.
_NEVER = 1e9


def verified(asked: Asked) -> Row:
    """Correctness on the four distributions at KernelBench's tolerance and at the looser one, and times in milliseconds
    (on the CPU none)."""
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        package(asked.root)
        row: Row = {"compiled": None, "correct": None, "runtime_ms": None}
        if asked.candidate:
            row = _candidate(asked)
        if asked.target == "cuda":
            import torch

            torch.set_float32_matmul_precision("high")
            row |= reference_times(asked)
    return finished(row, asked, printed.getvalue())


def _candidate(asked: Asked) -> Row:
    try:
        pair = loaded(asked)
    except Exception as error:  # noqa: BLE001 - whatever a candidate raises is a failed compilation
        message = f"{type(error).__name__}: {error}"
        return {"compiled": False, "correct": False, "runtime_ms": None, "message": message}
    try:
        needed = {str(factor): _needed_tolerance(asked, pair, factor) for factor in FACTORS}
        runtime = _runtime(asked, pair) if asked.target == "cuda" else None
    except RuntimeError as error:
        return {"compiled": True, "correct": False, "runtime_ms": None, "message": f"runtime_error: {error}"[:500]}
    tolerance = package(asked.root).get_tolerance_for_precision("fp32")
    worst = max((one for one in needed.values() if one is not None), default=_NEVER)
    return {
        "compiled": True,
        "correct": worst <= tolerance,
        "correct_at_looser_tolerance": worst <= LOOSER_TOLERANCE,
        "needed_tolerance": needed,
        "runtime_ms": runtime,
        "message": "" if worst <= tolerance else f"needs a tolerance of {worst:.1e}",
    }


def _needed_tolerance(asked: Asked, pair: Pair, factor: float) -> float | None:
    """The least tolerance, absolute and relative alike, with which the outputs agree; None if the distribution does not
    count."""
    import torch

    package(asked.root).set_seed(SEED)
    inputs = [_scaled(one, factor, device(asked)) for one in pair.get_inputs()]
    with torch.no_grad():
        expected, got = (torch.utils._pytree.tree_leaves(model(*inputs)) for model in (pair.model, pair.new))
    if not all(torch.isfinite(one).all() for one in expected):
        return None
    if [one.shape for one in got] != [one.shape for one in expected]:
        return _NEVER
    excesses = ((one - want).abs() / (1 + want.abs()) for one, want in zip(got, expected, strict=True))
    return max(float(one.nan_to_num(nan=_NEVER, posinf=_NEVER).max()) for one in excesses)


def _scaled(one: Any, factor: float, where: Any) -> Any:
    import torch

    if not isinstance(one, torch.Tensor):
        return one
    # As KernelBench does: all tensors become floats, those that were none are not scaled.
    scaled = one * factor if one.is_floating_point() else one
    return scaled.to(device=where, dtype=torch.float32)


def _runtime(asked: Asked, pair: Pair) -> float:
    timing = importlib.import_module("kernelbench.timing")
    package(asked.root).set_seed(SEED)
    inputs = [_scaled(one, 1.0, device(asked)) for one in pair.get_inputs()]
    times = timing.get_timing_function("cuda_event")(
        pair.new, inputs, num_trials=TIMED_TRIALS, verbose=False, device=device(asked)
    )
    return float(timing.get_timing_stats(times, device=device(asked))["mean"])
