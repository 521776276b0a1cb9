"""The CPU headers compared with the memory bandwidth, on all threads of this machine."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from kernel_assistant.targets import cpu
from kernel_assistant.worker.measuring.calibrate import calibrate
from kernel_assistant.worker.measuring.roofline import Roofline, floor_seconds
from tests.skills.cpu_programs import CASES, TORCH, CpuCall, compile_cpu

REPEATS = 15
ROWS, COLUMNS = 4096, 4096


def cpu_document(only: str) -> dict[str, Any]:
    facts = cpu.facts()
    bandwidths = calibrate("cpu", 0, facts.cache_bytes)
    ceilings = Roofline(copy=bandwidths["copy_bandwidth"], read=bandwidths["read_bandwidth"])
    rows = []
    with tempfile.TemporaryDirectory(prefix="ka-bench-") as folder:
        library = compile_cpu(Path(folder))
        for name in CASES:
            for ctype in TORCH:
                if only in name:
                    rows.append(_row(CpuCall(library, name, ctype, ROWS, COLUMNS), f"{name} {ctype}", ceilings))
                    print(json.dumps(rows[-1]), flush=True)
    return {
        "device": f"{facts.name}, {facts.threads} threads",
        "torch": torch.__version__,
        "copy_bandwidth": ceilings.copy,
        "read_bandwidth": ceilings.read,
        "programs": rows,
    }


def _row(call: CpuCall, name: str, ceilings: Roofline) -> dict[str, Any]:
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        call.run()
        times.append(time.perf_counter() - began)
    seconds = median(times)
    read = sum(one.numel() * one.element_size() for one in (call.x, *([call.y] if call.case.reads_y else [])))
    written = call.out.numel() * call.out.element_size()
    return {
        "header": call.case.header,
        "program": name,
        "sizes": f"{ROWS} rows of {COLUMNS}",
        "ms": seconds * 1e3,
        "rate": (read + written) / seconds / 1e9,
        "unit": "GB/s",
        "share": floor_seconds(read, written, ceilings) / seconds,
        "of": "bandwidth",
    }
