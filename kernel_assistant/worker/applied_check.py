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
from .applied_forms import for_a_while
from .applied_timing import row_alone, same_values
from .open_task import open_task


def pick_binary(params: dict[str, Any]) -> dict[str, Any]:
    """`{"name": file name}` of the binary that the loader takes here, `{"problem": why}` where none fits."""
    device = torch.device("cuda", params["device"]) if params["target"] == "cuda" else torch.device("cpu")
    binaries = Binaries(params["folder"], params["target"], params["cpu_flags"], params["binary_flags"])
    try:
        return {"name": binaries.pick(device)}
    except (NoBinary, FileNotFoundError) as error:
        return {"problem": str(error)}


class Applied:
    """One applied class. `task` is the original, `applied` the text with the kernels, `package` the folder of the
    loader. It is opened without kernels, which are loaded when they have been verified."""

    def __init__(self, params: dict[str, Any]) -> None:
        self._params, task = params, params["task"]
        self._device = f"cuda:{params['device']}" if task["target"] == "cuda" else "cpu"
        self._opened = open_task(task, self._device)

    def check(self, timing: bool) -> dict[str, Any]:
        """One declared call with kernels and one without, and times of both if `timing`.

        The answer has `equal`, `kernel` (calls that the kernels served), `fallbacks` (reason → calls), `warnings`, and
        `row` (as `time_applied` gives it, None without). Afterwards the class is as it was.
        """
        opened, task = self._opened, self._params["task"]
        with warnings.catch_warnings(record=True) as said, for_a_while(opened, self._params, self._device) as applied:
            warnings.simplefilter("always")
            args, kwargs = opened.inputs(0, task["seed"], "declared", None)
            with torch.no_grad():
                equal = same_values(opened, opened.model, applied, (args, kwargs))
            counted = counters(self._params["package"]).get(task["class_name"], {})
            wanted = timing and equal and counted.get("kernel", 0) > 0
            row = row_alone(opened, applied, self._params["cache_bytes"]) if wanted else None
        return {
            "equal": equal,
            "kernel": counted.get("kernel", 0),
            "fallbacks": counted.get("fallbacks", {}),
            "warnings": [str(one.message) for one in said if issubclass(one.category, RuntimeWarning)],
            "row": row,
        }


def counters(package: str) -> dict[str, Any]:
    """What the guards of a package have counted in this process, by class."""
    return dict(runpy.run_path(os.path.join(package, "load.py"))["counters"]())
