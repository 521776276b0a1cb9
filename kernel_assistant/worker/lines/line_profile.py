"""Measures the time of each line of a module's forward, as eager PyTorch runs it on the declared inputs."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch

from ..measuring.roofline import Roofline, floor_seconds
from ..measuring.statistics import median
from ..opening import open_steps as steps
from ..opening import task_checks as checks
from ..process.worker_errors import TaskError
from ..user_module.inputs import declared_inputs
from ..user_module.loading import build, load_module
from ..user_module.originals import originals
from .line_trace import Line, LineTrace, Watcher, codes_of
from .line_watchers import MOST_KERNELS, LineClock, LineMarks, LineTraffic, kernels_of

#: Most runs of each kind; fewer if `seconds` have passed.
MOST_RUNS = 50
LEAST_RUNS = 3
WARM_UP = 3


def profile_lines(task: dict[str, Any], device: str, seconds: float, ceilings: Roofline) -> dict[str, Any]:
    """Times each line of the class's forward. Returns a dict: `ms` is the time of a whole forward, `lines` has one dict
    for each line, `runs` says how often the lines were timed; `torch` (version) and `workload` (name) are texts.
    `seconds` limits the repeated runs, but not the time for opening the task.

    If kernels are applied, the lines of the original are timed: those lines could be optimized, although the program
    does not run them now. Raises TaskError for whatever is wrong with the file, the class or its inputs. The module
    need not be one that can be exported or judged.
    """
    steps.check_machine(device)
    module = load_module(task)
    model = build(module, task, device)
    args, kwargs = declared_inputs(module, task, model.forward, 0, task["seed"], device)
    checks.check_signature(model, args, kwargs)
    codes = codes_of(type(model), task["path"], task["content"])
    run = _Runs(lambda: steps.run_module(model, args, kwargs, task["path"]), codes, device)
    with originals():
        for _ in range(WARM_UP):
            run.plain()
        whole = run.repeat(run.plain, seconds / 3)
        clocks = [LineClock(run.cuda) for _ in range(MOST_RUNS)]
        counted = len(run.repeat(lambda: run.watched(clocks.pop()), seconds / 2))
        rows = _rows(run, counted, ceilings)
    if not rows:
        raise TaskError(
            "forward_failed",
            f"no line of {task['class_name']}.forward ran in Python: it is inherited from another file, or compiled",
            "profile the class that defines forward, without torch.compile",
        )
    return {
        "ms": median(whole) * 1e3,
        "runs": counted,
        "lines": rows,
        "torch": torch.__version__,
        "workload": task["workloads"][0]["name"],
    }


class _Runs:
    """Runs the module (`call`), with or without timing its lines; `codes` has the lines of each of its functions.
    `seen` has one `LineClock` for each run in which lines were timed."""

    def __init__(self, call: Callable[[], object], codes: dict[CodeType, dict[int, Line]], device: str) -> None:
        self._call, self._codes = call, codes
        self.cuda = device.startswith("cuda")
        self.seen: list[LineClock] = []

    def plain(self) -> None:
        """Runs one complete call, without timing its lines, and waits for the device."""
        self._call()

    def watched(self, clock: LineClock) -> None:
        self.under(clock)
        self.seen.append(clock)

    def under(self, watcher: Watcher) -> None:
        with LineTrace(self._codes, watcher):
            self._call()

    def repeat(self, once: Callable[[], None], seconds: float) -> list[float]:
        """Calls `once` repeatedly and returns the wall seconds of each call. There are at least `LEAST_RUNS` and at
        most `MOST_RUNS` calls; between these, none begins after `seconds`.
        """
        times: list[float] = []
        deadline = time.perf_counter() + seconds
        while len(times) < MOST_RUNS and (len(times) < LEAST_RUNS or time.perf_counter() < deadline):
            began = time.perf_counter()
            once()
            times.append(time.perf_counter() - began)
        return times


def _rows(run: _Runs, runs: int, ceilings: Roofline) -> list[dict[str, Any]]:
    """Returns one dict for each statement that ran, in order of its line: times, bytes, flops and kernels. `runs` is
    the number of runs in `run` in which lines were timed."""
    device = [clock.device() for clock in run.seen]
    lines = sorted({line for times in device for line in times}, key=lambda line: line[1:])
    if not lines:
        return []
    traffic = LineTraffic()
    with traffic:
        run.under(traffic)
    kernels = kernels_of(lambda: run.under(LineMarks()), run.cuda)
    total = sum(median([times.get(line, 0.0) for times in device]) for line in lines if line[0] == "forward")
    rows = []
    for line in lines:
        seconds = median([times.get(line, 0.0) for times in device])
        read, written = traffic.read[line], traffic.written[line]
        # Data that fits into the cache need not come from memory, but the operations are still needed.
        moved = (read, written) if read + written > ceilings.cache_bytes else (0, 0)
        floor = floor_seconds(*moved, ceilings, traffic.least_flops[line])
        rows.append(
            {
                "function": line[0],
                "line": line[1],
                "end_line": line[2],
                "calls": sum(clock.calls[line] for clock in run.seen) / runs,
                "ms": seconds * 1e3,
                "host_ms": median([clock.host[line] for clock in run.seen]) * 1e3,
                "share": seconds / total if total else 0.0,
                "read_bytes": read,
                "written_bytes": written,
                "flops": traffic.flops[line],
                "roofline": floor / seconds if floor and seconds else None,
                "kernels": longest(kernels.get(line, {}), seconds, one_by_one=not run.cuda),
            }
        )
    return rows


def longest(kernels: dict[str, list[float]], line_seconds: float, *, one_by_one: bool) -> list[dict[str, Any]]:
    """Turns kernels, given as name → [calls, seconds], into rows {name, calls, ms}, the longest first.

    The kernels were measured under the profiler, in other runs than the line. So their times are scaled down until no
    kernel takes longer than its line; if they run `one_by_one`, until all of them together take no longer than the
    line.
    """
    times = [seconds for _, seconds in kernels.values()]
    most = (sum(times) if one_by_one else max(times)) if times else 0.0
    fits = min(1.0, line_seconds / most) if most else 1.0
    kernels = {name: [calls, seconds * fits] for name, (calls, seconds) in kernels.items()}
    ordered = sorted(kernels.items(), key=lambda item: -item[1][1])[:MOST_KERNELS]
    return [{"name": name, "calls": calls, "ms": seconds * 1e3} for name, (calls, seconds) in ordered]
