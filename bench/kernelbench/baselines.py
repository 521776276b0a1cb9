"""PyTorch's own modes on an open problem: eager, torch.compile, `reduce-overhead` and `max-autotune`.

Each mode is timed against torch.compile in paired blocks, as a kernel is, and its error against float64 is measured.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from bench.harness import Row
from bench.kernelbench.problems import Problem
from kernel_assistant.environment.session import Environment
from kernel_assistant.errors import WorkerError

#: The judge's changes (docs/free_wins.md) that make up each mode; those that do not exist on a target are left out.
MODES = {
    "compile": ("compile",),
    "reduce-overhead": ("cuda_graphs",),
    "max-autotune": ("max_autotune", "cuda_graphs"),
}


def measure_modes(environment: Environment, seconds: float) -> Row:
    """The modes that exist for the open problem; each gets at most `seconds`, with its compilation."""
    eager = environment.baseline(compiled=False)
    worker, cancel = environment.worker, environment.cancel
    offered = {one["name"] for one in worker.call("free_wins", {}, timeout=seconds, cancel=cancel)["offered"]}
    modes = dict[str, Row]()
    for mode, parts in MODES.items():
        names = tuple(name for name in parts if name in offered)
        if not names or any(names == row["parts"] for row in modes.values()):
            continue
        try:
            with environment.timed_by_judge():
                asked = {"names": names, "seconds": seconds}
                modes[mode] = {"parts": names, **worker.call("free_win", asked, timeout=2 * seconds, cancel=cancel)}
        except WorkerError as error:
            modes[mode] = {"parts": names, "ms": None, "note": f"not measured: {error.cause}"}
            break
    measured = [mode for mode in modes.values() if mode["ms"]]
    return {
        "outcome": "measured" if measured else "failed",
        "device": environment.device.name,
        "eager_ms": eager.eager_ms,
        "floor_ms": eager.floor_ms,
        "modes": {mode: {**row, "parts": list(row["parts"])} for mode, row in modes.items()},
    }


def drawn_again(chosen: Sequence[Problem], share: float, seed: int) -> list[Problem]:
    """A share of the problems by lot, at least one, in their order."""
    count = max(1, round(share * len(chosen)))
    lot = set(random.Random(seed).sample(range(len(chosen)), min(count, len(chosen))))
    return [one for index, one in enumerate(chosen) if index in lot]


def speedups_of_modes(row: Row) -> dict[str, tuple[float, float]]:
    """For eager and each measured mode: torch.compile's time over its own, and the upper end of the interval."""
    speedups = {"compile": (1.0, 1.0)}
    plain = row["modes"].get("compile", {})
    if plain.get("speedup_vs_eager"):
        estimate, (low, _) = plain["speedup_vs_eager"], plain["speedup_vs_eager_ci"]
        speedups["eager"] = (1 / estimate, 1 / low)
    for mode, one in row["modes"].items():
        if one.get("speedup_vs_compile"):
            speedups[mode] = (one["speedup_vs_compile"], one["speedup_vs_compile_ci"][1])
    return speedups
