"""Hardware counters of a candidate's kernels, read by Nsight Compute if the machine allows it.

Nsight Compute needs interfaces of the driver in order to replay kernels, so it runs outside the sandbox. It profiles
our own executor, which loads the cubin; on CUDA a candidate has no host code. The process has no other files of the
candidate and no values of the user, and only verified candidates are profiled.
"""

from __future__ import annotations

import csv
import glob
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernel_assistant.errors import Cancelled, MissingError, StoreError, boundary
from kernel_assistant.records import Plan, encode
from kernel_assistant.records.codec import to_builtins
from kernel_assistant.records.counters import KernelCounters
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.sandbox.contract import SandboxLimits, SandboxSpec
from kernel_assistant.sandbox.run import run

BOOT = Path(__file__).resolve().parent.parent / "worker" / "runner" / "boot.py"
#: Time limit: about fourteen passes over each launch, and the start of the profiler.
SECONDS = 60.0

_OF = {
    "microseconds": "gpu__time_duration.sum",
    "memory": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "compute": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "l2_hits": "lts__t_sector_hit_rate.pct",
    "read_bytes": "dram__bytes_read.sum",
    "written_bytes": "dram__bytes_write.sum",
    "loads": "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct",
    "stores": "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct",
    "bank_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
}
_STALLS = {
    "long_scoreboard": "global memory",
    "short_scoreboard": "shared memory or special functions",
    "lg_throttle": "the queue of global accesses",
    "mio_throttle": "the queue of shared accesses",
    "math_pipe_throttle": "arithmetic units",
    "barrier": "barriers",
    "wait": "fixed latency",
}
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
#: Stall reasons below this are not reported. Unit: stalled warps for each issued instruction.
_LEAST_STALL = 0.1


def profiler() -> str:
    """Returns the path of Nsight Compute's program `ncu`. Raises MissingError if there is none."""
    homes = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda", *sorted(glob.glob("/opt/nvidia/nsight-compute/*"))]
    paths = [os.path.join(home, below, "ncu") for home in homes if home for below in ("bin", "")]
    for path in [shutil.which("ncu") or "", *paths]:
        if path and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    raise MissingError("Nsight Compute (ncu) was not found", "install it with the CUDA toolkit")


def count(
    plan: Plan, cubin: bytes, dims: Mapping[str, int], device: int, cancel: threading.Event
) -> tuple[KernelCounters, ...]:
    """Returns the counters of each launch of `plan` at the sizes `dims`, in order. Raises Cancelled, and MissingError
    if there is no profiler, the machine denies access to counters, or a launch of the plan calls PyTorch or a
    library."""
    if not all(launch.is_kernel for launch in (*plan.prepare, *plan.launches)):
        raise MissingError("counters are read of plans that launch nothing but their own kernels", "")
    tool = profiler()
    with (
        boundary(StoreError, "counters cannot be read"),
        tempfile.TemporaryDirectory(prefix="kernel-assistant-counters-") as folder,
    ):
        wanted = {"plan": to_builtins(plan), "dims": dict(dims), "device": device}
        Path(folder, "plan.json").write_bytes(encode(wanted))
        Path(folder, "kernels.cubin").write_bytes(cubin)
        spec = SandboxSpec(
            argv=(tool, *_options(), sys.executable, "-I", "-S", str(BOOT), folder),
            workspace=folder,
            cwd=folder,
            gpu=True,
            allow_fork=True,
            env={"HOME": folder, "TMPDIR": folder},
            limits=SandboxLimits(cpu_seconds=int(SECONDS), file_bytes=64 << 20, memory_bytes=16 << 30, processes=512),
        )
        done = run(choose("none"), spec, timeout=SECONDS, cancel=cancel, max_output=16 << 20)
    if done.cancelled:
        raise Cancelled("cancelled while counters were read")
    text = done.stdout.decode(errors="replace")
    counters = read_counters(text)[len(plan.prepare) :]
    if len(counters) != len(plan.launches):
        raise MissingError(f"Nsight Compute read no counters: {_why(text, done.stderr, done.timed_out)}", "")
    return counters


def read_counters(text: str) -> tuple[KernelCounters, ...]:
    """Parses the CSV at the end of ncu's output, one row for each launch. Returns () if there is no CSV."""
    start = text.find('"ID"')
    rows = list(csv.reader(text[start:].splitlines())) if start >= 0 else []
    if len(rows) < 3:
        return ()
    head, _units, *launches = rows
    return tuple(_counters(dict(zip(head, row, strict=True))) for row in launches if len(row) == len(head))


def _counters(row: dict[str, str]) -> KernelCounters:
    figures = {field: _number(row.get(metric, "")) for field, metric in _OF.items()}
    stalls = [(words, _number(row.get(_STALL.format(reason), ""))) for reason, words in _STALLS.items()]
    return KernelCounters(
        symbol=row["Kernel Name"],
        microseconds=figures["microseconds"] / 1e3,
        read_bytes=int(figures["read_bytes"]),
        written_bytes=int(figures["written_bytes"]),
        bank_conflicts=int(figures["bank_conflicts"]),
        memory=figures["memory"] / 100,
        compute=figures["compute"] / 100,
        occupancy=figures["occupancy"] / 100,
        l2_hits=figures["l2_hits"] / 100,
        loads=figures["loads"] / 100,
        stores=figures["stores"] / 100,
        stalls=tuple(sorted((one for one in stalls if one[1] >= _LEAST_STALL), key=lambda one: -one[1])),
    )


def _number(text: str) -> float:
    """Parses one cell of the CSV. Returns 0 if it is not a number: then the device does not have the counter."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return 0.0


def _options() -> Sequence[str]:
    metrics = [*_OF.values(), *(_STALL.format(reason) for reason in _STALLS)]
    printed = ("--csv", "--page", "raw", "--print-units", "base")
    return ("--clock-control", "none", *printed, "--metrics", ",".join(metrics))


def _why(text: str, errors: bytes, timed_out: bool) -> str:
    if timed_out:
        return f"it took longer than {SECONDS:.0f} s"
    lines = [line.strip("= ") for line in (*text.splitlines(), *errors.decode(errors="replace").splitlines())]
    return next(
        (line for line in lines if "ERROR" in line or "rror:" in line), lines[-1] if lines else "it said nothing"
    )
