"""Checks an applied package (the folder of kernels beside the user's file) in a process like the user's: which binary
its loader picks, whether the kernels run, and whether their outputs equal the original's.

It loads generated code without a sandbox, as the user's own process does; the judge has already run the same binary in
the sandbox.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from ..applied.binaries import Binaries
from ..applied.parts import Parts
from ..opening.open_task import open_task
from .applied_forms import counters, for_a_while
from .applied_timing import row_alone, same_values


def pick_binary(params: dict[str, Any]) -> dict[str, Any]:
    """Returns `{"name": file name}` of the compiled binary that the package's loader picks on this machine, or
    `{"problem": why}` if none fits. `params` has `package` (its folder), `class`, `size`, `target`, `device` (its
    index), `cpu_flags` and `binary_flags`."""
    device = torch.device("cuda", params["device"]) if params["target"] == "cuda" else torch.device("cpu")
    parts = Parts(params["package"], params["class"])
    binaries = Binaries(parts, params["size"], params["target"], params["cpu_flags"], params["binary_flags"])
    try:
        return {"name": binaries.pick(device)}
    except (OSError, ValueError) as error:
        return {"problem": str(error)}


class AppliedModule:
    """A user's class with the kernels that were applied to it. In `params`, `task` is the original (a KernelTask as
    builtins), `applied` the text of its file with the kernels, and `package` the folder of the kernels. The constructor
    opens the class without kernels; `check` loads them."""

    def __init__(self, params: dict[str, Any]) -> None:
        self._params, task = params, params["task"]
        self._device = f"cuda:{params['device']}" if task["target"] == "cuda" else "cpu"
        self._opened = open_task(task, self._device)

    def check(self, timing: bool) -> dict[str, Any]:
        """Calls the class with its declared inputs, once with kernels and once without; times both if `timing` is set
        and the outputs are equal.

        Returns a dict with `equal`, `kernel` (number of calls that ran kernels), `fallbacks` (reason → number of calls
        that ran the original forward), `warnings` (texts), and `row` (times as in `time_applied`, None if nothing was
        timed). Afterwards the class is as before.
        """
        opened, task = self._opened, self._params["task"]
        with warnings.catch_warnings(record=True) as caught, for_a_while(opened, self._params, self._device) as applied:
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
            "warnings": [str(one.message) for one in caught if issubclass(one.category, RuntimeWarning)],
            "row": row,
        }
