"""Whole forward passes of real models with the applied kernels and without, alternating in one process.

Runs in the folder of the program, under the interpreter that has its libraries; prints one line of JSON for each model.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch


def main() -> int:
    arguments = _arguments()
    sys.path.insert(0, str(Path.cwd()))
    packages = [importlib.import_module(path.name) for path in sorted(Path.cwd().glob("kernels_for_*"))]
    models = importlib.import_module(Path(arguments.program).stem)
    chosen = arguments.models.split(",")
    with torch.no_grad():
        for name in chosen:
            try:
                ((_, model, inputs),) = models.built(
                    [name], arguments.device, arguments.size == "real", getattr(torch, arguments.dtype)
                )
                row = compared(model, inputs, packages, models.first_tensor, arguments)
            except Exception as error:  # noqa: BLE001 - one model that fails is a line of the table
                row = {"problem": f"{type(error).__name__}: {error}".splitlines()[0]}
            print(json.dumps({"model": name, **row}), flush=True)
    return 0


def compared(model: Any, inputs: dict[str, Any], packages: list[Any], first: Any, chosen: argparse.Namespace) -> Any:
    """Milliseconds of one pass without and with kernels, their quotient by rounds, and how far the results differ."""
    results = []
    for enabled in (False, True):
        _switch(packages, enabled)
        for _ in range(3):
            result = model(**inputs)
        results.append(first(result).double())
    for package in packages:
        package.reset_counters()
    _switch(packages, True)
    model(**inputs)
    counted = {name: counts for package in packages for name, counts in package.counters().items()}
    passes = max(1, min(50, int(chosen.seconds / 16 / max(_seconds(model, inputs, 1), 1e-4))))
    rounds = []
    began = time.perf_counter()
    while len(rounds) < 5 or (len(rounds) < 25 and time.perf_counter() - began < chosen.seconds):
        times = {}
        for enabled in (False, True) if len(rounds) % 2 else (True, False):
            _switch(packages, enabled)
            times[enabled] = _seconds(model, inputs, passes)
        rounds.append((times[False], times[True]))
    ratios = sorted(before / after for before, after in rounds)
    return {
        "before_ms": median(before for before, _ in rounds) * 1e3,
        "after_ms": median(after for _, after in rounds) * 1e3,
        "speedup": median(ratios),
        "lowest": ratios[0],
        "highest": ratios[-1],
        "rounds": len(rounds),
        "difference": float((results[0] - results[1]).norm() / results[0].norm()),
        "kernel_calls": {name: counts["kernel"] for name, counts in counted.items() if counts["kernel"]},
        "fallbacks": {name: counts["fallbacks"] for name, counts in counted.items() if counts["fallbacks"]},
    }


def _seconds(model: Any, inputs: dict[str, Any], passes: int) -> float:
    """Seconds of one pass, which starts and ends with an idle device."""
    _wait()
    began = time.perf_counter()
    for _ in range(passes):
        model(**inputs)
    _wait()
    return (time.perf_counter() - began) / passes


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _switch(packages: list[Any], enabled: bool) -> None:
    for package in packages:
        package.set_enabled(enabled)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Passes of models with and without applied kernels.")
    parser.add_argument("--program", required=True)
    parser.add_argument("--models", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--size", required=True)
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--seconds", type=float, default=1.5, help="of timing for each model")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
