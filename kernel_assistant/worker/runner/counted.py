"""Runs one call of a plan on made-up inputs, which a profiler watches: `PYTHON -I -S boot.py FOLDER`. Standard library
only.

The folder holds `plan.json` (plan, dims, device) and `kernels.cubin`. Outputs are not compared: the bytes that a kernel
moves, and how busy it keeps the device, hardly depend on the values.
"""

from __future__ import annotations

import json
import os

from . import plan as plans
from .cuda_driver import Driver
from .executor import CudaModule, bind

#: Each byte of a float, which gives 0.0115 as f32 and bf16, 1.06 as f16. Integers are 0, which is a valid index.
_FLOAT_BYTE = 0x3C
_FLOATS = ("f64", "f32", "bf16", "f16")


def main(folder: str) -> int:
    """Runs the plan in `folder` once, for a profiler: its list `prepare`, if it has one, then its launches. Returns the
    exit status 0. Raises CudaError and PlanError."""
    with open(os.path.join(folder, "plan.json"), encoding="utf-8") as file:
        wanted = json.load(file)
    plan, dims = wanted["plan"], wanted["dims"]
    driver = Driver(wanted["device"])
    with open(os.path.join(folder, "kernels.cubin"), "rb") as file:
        module = CudaModule(driver, file.read())
    pointers = []
    for spec in plans.buffers(plan):
        size = plans.byte_size(spec, dims)
        pointers.append(driver.allocate(max(size, 1)))
        driver.fill(pointers[-1], _FLOAT_BYTE if spec["dtype"] in _FLOATS else 0, size)
    if plan.get("prepare"):
        bind(plan, dims, module, "prepare").run(pointers)
    bind(plan, dims, module).run(pointers)
    driver.synchronize()
    return 0
