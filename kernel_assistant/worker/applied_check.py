"""Looks at an applied package as a user's process sees it: which binary is picked, do the kernels run, what comes out.

Loads generated code without a sandbox, as the user's own process does; the judge has run the same binary in one before.
"""

from __future__ import annotations

import os
import runpy
import warnings
from typing import Any

import torch

from .applied.binaries import Binaries, NoBinary
from .applied_forms import with_kernels
from .applied_timing import same_values
from .open_task import open_task


def pick_binary(params: dict[str, Any]) -> dict[str, Any]:
    """`{"name": file name}` of the binary that the loader takes here, `{"problem": why}` where none fits."""
    device = torch.device("cuda", params["device"]) if params["target"] == "cuda" else torch.device("cpu")
    binaries = Binaries(params["folder"], params["target"], params["cpu_flags"], params["binary_flags"])
    try:
        return {"name": binaries.pick(device)}
    except (NoBinary, FileNotFoundError) as error:
        return {"problem": str(error)}


def inspect_applied(params: dict[str, Any]) -> dict[str, Any]:
    """One declared call of the class with its kernels and one without.

    `task` is the original, `applied` the text with the kernels, `package` the folder of the loader. The answer has
    `equal`, `kernel` (calls that the kernels served), `fallbacks` (reason → calls) and `warnings`.
    """
    task = params["task"]
    device = f"cuda:{params['device']}" if task["target"] == "cuda" else "cpu"
    opened = open_task(task, device)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        applied = with_kernels(opened, params, device)
        args, kwargs = opened.inputs(0, task["seed"], "declared", None)
        with torch.no_grad():
            equal = same_values(opened, opened.model, applied, (args, kwargs))
    counted = counters(params["package"]).get(task["class_name"], {})
    return {
        "equal": equal,
        "kernel": counted.get("kernel", 0),
        "fallbacks": counted.get("fallbacks", {}),
        "warnings": [str(one.message) for one in said if issubclass(one.category, RuntimeWarning)],
    }


def counters(package: str) -> dict[str, Any]:
    """What the guards of a package have counted in this process, by class."""
    return dict(runpy.run_path(os.path.join(package, "load.py"))["counters"]())
