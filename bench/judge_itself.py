"""Checks the judge: whether it calls a kernel different from itself, and whether it detects a kernel that is 3% slower.

Two runners hold the same binary. They are compared exactly as a candidate and torch.compile in a confirmation:
`FullTier.compare`, up to three measurements with an interval that is 99.9% over all of them, and the least effect that
counts. The slower kernel computes a few rows twice; how many make it 3% slower is measured first.

`python -m bench.judge_itself cuda --judges 12 --comparisons 400` compares the kernel with itself in 12 processes at the
same time, each time bound anew, and prints how many intervals of one measurement exclude 1, with all of them, as a line
of JSON.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Self
from unittest import mock

from bench.figures import Figure, Settings
from bench.harness import IsolatedProcess, Row
from bench.subjects import ROWS, norm, norm_environment, norm_task
from kernel_assistant.environment.device_locks import lock_of
from kernel_assistant.environment.measuring import GPU_SHARE
from kernel_assistant.environment.repeated_measurement import MOST_LOOKS
from kernel_assistant.records import to_builtins
from kernel_assistant.records.evaluation import Gain, gain_of
from kernel_assistant.targets import cuda
from kernel_assistant.worker.device_lock import DeviceLock
from kernel_assistant.worker.measuring.repeated_measurement import interval_of

if TYPE_CHECKING:
    from kernel_assistant.targets.base import DeviceFacts
    from kernel_assistant.worker.measuring.timing import Series

#: Seconds after which an interval gets the least number of rounds: at once on a GPU, where they differ little.
MOST_SECONDS = {"cpu": math.inf, "cuda": 0.0}
#: Seconds after `--most-seconds` in which a judge may end its last comparison.
GRACE = 20
#: Seconds without a comparison after which a judge writes its stack to stderr.
SLOW = 60
#: Estimate, lower and upper end.
Interval = tuple[float, float, float]
MOST_DIFFERENT = 2
SLOWER = 1.03
WORKERS = 2
#: Judges that share a GPU, as in labelling; on the CPU two for two cores.
JUDGES = {"cpu": 2, "cuda": 12}


def measure(settings: Settings) -> list[Figure]:
    target, comparisons = settings.target, settings.count(settings.comparisons, 4)
    with Bench(target) as bench:
        began = time.perf_counter()
        quiet = bench.different(comparisons)
        seconds, measurements = (time.perf_counter() - began) / comparisons, bench.measurements / comparisons
        extra, effect = bench.calibrate(settings.count(12, 2))
        detected = bench.told_apart(extra, settings.count(40, 3))
        with busy(target) as load:
            loaded = bench.different(comparisons)
            detected_loaded = bench.told_apart(extra, settings.count(40, 3))
    beside = JUDGES[target]
    shared = itself_beside(target, beside, comparisons, math.inf)
    name = "intervals that say it differs from itself, by judges that share the device"
    how = f"of {sum(map(len, shared['intervals']))} by {beside} judges, one measurement each"
    aim = MOST_DIFFERENT if comparisons <= 200 else round(MOST_DIFFERENT * comparisons / 200)
    return [
        Figure("called different from itself, quiet", quiet, "", f"of {comparisons}", ("≤", aim)),
        Figure("called different from itself, busy", loaded, "", f"of {comparisons}; {load}", ("≤", aim)),
        Figure(name, shared["excluded"], "", how, ("≤", aim)),
        Figure("the slower kernel", effect, "times", f"as long, measured: {extra} of {ROWS[target]} rows again"),
        Figure("slower kernel told apart, quiet", detected * 100, "%", "of 40 comparisons", ("≥", 90)),
        Figure("slower kernel told apart, busy", detected_loaded * 100, "%", "of 40 comparisons"),
        Figure("one comparison", seconds, "s", f"{measurements:.2g} looks on average, of {bench.rounds} rounds"),
    ]


@dataclass(frozen=True)
class Prepared:
    """What the environment of the norm gives: the command of a runner, the device, the kernel's binaries."""

    command: dict[str, Any]
    device: DeviceFacts
    binaries: dict[str, bytes]


def prepare(target: str) -> Prepared:
    """Opens the norm, measures the device and builds the kernel."""
    with tempfile.TemporaryDirectory(prefix="ka-bench-") as cache, norm_environment(target, Path(cache)) as environment:
        return Prepared(environment._runner_command(), environment.device, dict(environment.binaries(norm(target))))


class Bench:
    """The norm opened in this process, and two runners that hold its binary."""

    def __init__(self, target: str, prepared: Prepared | None = None) -> None:
        self.target = target
        self.measurements = 0
        found = prepared or prepare(target)
        self._command, self._device, self._binary = found.command, found.device, found.binaries

    def __enter__(self) -> Self:
        from kernel_assistant.worker.process.pinning import import_torch

        import_torch()
        import torch

        from kernel_assistant.worker.measuring.profiling import Profiler
        from kernel_assistant.worker.measuring.roofline import Roofline
        from kernel_assistant.worker.measuring.tiers.full_tier import ROUNDS
        from kernel_assistant.worker.opening.open_task import open_task
        from kernel_assistant.worker.running.runner_client import RunnerClient, RunnerCommand
        from kernel_assistant.worker.verifying.cases import Case, fresh_seed
        from kernel_assistant.worker.verifying.verification import expect

        device = f"cuda:{self._device.index}" if self.target == "cuda" else "cpu"
        task = open_task(to_builtins(norm_task(self.target)), device)
        base = expect(task, Case(0, "declared", None, fresh_seed()))
        assert base is not None
        ceilings = Roofline(self._device.copy_bandwidth, self._device.read_bandwidth, 0.0, self._device.cache_bytes)
        # As in the judge: what is not timed holds the lock shared, and a lock is given back when the device is done. On
        # the CPU the caller holds the lock, not the profiler.
        settle = torch.cuda.synchronize if self.target == "cuda" else lambda: None
        self.lock = DeviceLock(lock_of(self._device).folder, settle)
        held = self.lock if self.target == "cuda" else DeviceLock()
        self.profiler = Profiler(task, base, ceilings, self.target, lock=held)
        argv, env = tuple(self._command["argv"]), self._command["env"]
        command = RunnerCommand(argv, env, self.target, self._command["device"])
        self._runners = [RunnerClient(command) for _ in range(WORKERS)]
        self.rounds = ROUNDS[self.target]
        self._no_grad = torch.no_grad()
        self._no_grad.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._no_grad.__exit__(None, None, None)
        for runner in self._runners:
            runner.close()
        self.profiler.close()

    def interval(self, extra: int, most_seconds: float = math.inf) -> Interval:
        """The slowdown of the kernel with extra rows and its 99.9% interval, from one measurement of the full
        protocol; after `most_seconds` the least number of rounds is enough."""
        return interval_of(self._series(extra, most_seconds), "candidate", "twin")

    def judged(self, extra: int) -> Gain:
        """The verdict on the kernel with extra rows, with repeated measurements while it is unclear."""
        series, verdict = None, Gain.unknown
        for measurement in range(1, MOST_LOOKS + 1):
            more = self._series(extra)
            series = more if series is None else more.behind(series)
            ratio, low, high = interval_of(series, "candidate", "twin", measurement, MOST_LOOKS)
            verdict = gain_of(ratio, (low, high))
            if verdict is not Gain.unclear:
                break
        self.measurements += measurement
        return verdict

    def _series(self, extra: int, most_seconds: float = math.inf) -> Series:
        with self.lock.exclusive() if self.target == "cpu" else self.lock.shared():
            plain, other = self._subject(0, 0), self._subject(1, extra)
            plain.name = "twin"
            return self.profiler.full_tier.compare(other, plain, [], lambda *_: None, most_seconds=most_seconds)

    def different(self, comparisons: int) -> int:
        """How often the kernel is called different from itself."""
        return sum(self.judged(0) in (Gain.faster, Gain.slower) for _ in range(comparisons))

    def calibrate(self, repeats: int) -> tuple[int, float]:
        """The number of rows to compute twice for 3% more time, and the slowdown that this gave."""
        probe = ROWS[self.target] // 8
        slope = (median([self.interval(probe)[0] for _ in range(repeats)]) - 1) / probe
        extra = max(1, round((SLOWER - 1) / max(slope, 1e-9)))
        return extra, median([self.interval(extra)[0] for _ in range(repeats)])

    def told_apart(self, extra: int, comparisons: int) -> float:
        """The share of comparisons in which the slower kernel is called slower."""
        # The ratio is a slowdown, so `faster` means that the unchanged kernel is faster.
        return sum(self.judged(extra) is Gain.faster for _ in range(comparisons)) / comparisons

    def _subject(self, which: int, extra: int) -> Any:
        from kernel_assistant.worker.measuring.timing import PlanSubject

        runner = self._runners[which]
        content = next(iter(self._binary.values()))  # of this device; those of other architectures follow
        descriptor = os.memfd_create("binary", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, content)
            os.lseek(descriptor, 0, os.SEEK_SET)
            plan = to_builtins(norm(self.target, extra=extra).plan)
            runner.request({"op": "load", "plan": plan}, 30, (descriptor,))
        finally:
            os.close(descriptor)
        self.profiler.sets.bind(runner)
        return PlanSubject(runner, 60)


def itself_beside(target: str, judges: int, comparisons: int, most_seconds: float) -> Row:
    """Comparisons of a kernel with itself by `judges` processes at the same time, each of which begins none after
    `most_seconds`: `excluded` of the intervals, which are kept by judge, do not contain 1."""
    began = time.time()
    # Once for all: twelve environments make contexts on a GPU and measure its bandwidth for minutes.
    prepared, until = prepare(target), began + most_seconds
    parts = [comparisons // judges + (number < comparisons % judges) for number in range(judges)]

    def judge(part: int) -> list[Interval]:
        found = list[Interval]()
        with IsolatedProcess(until + GRACE - time.time()) as process, suppress(RuntimeError):
            while len(found) < part and time.time() < until:
                found.append(process.call(compare_with_itself, target, prepared))
        return found

    with mock.patch.dict(os.environ, {GPU_SHARE: str(round(0.8 / judges, 3))}), ThreadPoolExecutor(judges) as pool:
        intervals = list(pool.map(judge, parts))
    excluded = sum(low > 1 or high < 1 for of_judge in intervals for _, low, high in of_judge)
    row: Row = {"target": target, "judges": judges, "seconds": round(time.time() - began, 1)}
    return row | {"excluded": excluded, "intervals": intervals}


def compare_with_itself(target: str, prepared: Prepared) -> Interval:
    """An interval of this process, which writes its stack to stderr where a comparison takes longer than `SLOW`."""
    faulthandler.dump_traceback_later(SLOW)
    try:
        if target not in _benches:
            _benches[target] = Bench(target, prepared).__enter__()
        return _benches[target].interval(0, MOST_SECONDS[target])
    finally:
        faulthandler.cancel_dump_traceback_later()


#: The bench of this process.
_benches: dict[str, Bench] = {}


@contextmanager
def busy(target: str) -> Iterator[str]:
    """Load on the machine: a spinning process for every second core, or a process that uses the GPU about half of the
    time."""
    programs = [GPU_LOAD] if target == "cuda" else [CPU_LOAD] * max(1, (os.cpu_count() or 2) // 2)
    processes = [subprocess.Popen([sys.executable, "-c", program]) for program in programs]
    try:
        time.sleep(10 if target == "cuda" else 1)
        spinning = f"{len(processes)} processes that spin"
        percent = cuda.load(0)[0] if target == "cuda" else None
        yield spinning if target == "cpu" else f"another process uses the GPU, {percent}% busy by the driver"
    finally:
        for process in processes:
            process.kill()
            process.wait()


CPU_LOAD = "while True: pass"
#: About half a millisecond of matrix products, then a pause of similar length.
GPU_LOAD = """
import time, torch
a = torch.randn(2048, 2048, device="cuda")
while True:
    torch.cuda.synchronize()
    began = time.perf_counter()
    a @ a
    torch.cuda.synchronize()
    time.sleep(1.5 * (time.perf_counter() - began))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="How often a kernel's interval says that it differs from itself.")
    parser.add_argument("target", choices=["cpu", "cuda"])
    parser.add_argument("--judges", type=int, default=1, help="processes that judge at the same time")
    parser.add_argument("--comparisons", type=int, default=400)
    parser.add_argument("--most-seconds", type=float, default=math.inf, help="begin no comparison after so long")
    given = parser.parse_args()
    print(json.dumps(itself_beside(**vars(given))))


if __name__ == "__main__":
    main()
