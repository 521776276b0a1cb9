"""The judge against itself: does it call a kernel different from itself, and does it see one that is 3% slower?

Two runners hold the same binary. They are compared exactly as a candidate is with torch.compile in the full tier:
`Profiler.compare`, the 99.9% interval and the least effect that counts. The slower kernel computes a few rows again;
how many give 3% is measured first.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any, Self

from bench.figures import Figure, Settings
from bench.subjects import ROWS, norm, norm_environment, norm_task
from kernel_assistant.environment.device_locks import lock_of
from kernel_assistant.environment.measuring import GPU_SHARE
from kernel_assistant.records import to_builtins
from kernel_assistant.records.evaluation import measurably_faster, measurably_slower
from kernel_assistant.worker.device_lock import DeviceLock

MOST_DIFFERENT = 2
SLOWER = 1.03
WORKERS = 2
#: Judges that share a GPU, as for labels; two for two cores.
JUDGES = {"cpu": 2, "cuda": 12}


def measure(settings: Settings) -> list[Figure]:
    comparisons = settings.count(settings.comparisons, 4)
    with Bench(settings.target) as bench:
        began = time.perf_counter()
        quiet = bench.different(comparisons)
        seconds = (time.perf_counter() - began) / comparisons
        extra, effect = bench.calibrate(settings.count(12, 2))
        told = bench.told_apart(extra, settings.count(40, 3))
        with busy(settings.target) as load:
            loaded = bench.different(comparisons)
            told_loaded = bench.told_apart(extra, settings.count(40, 3))
    beside = JUDGES[settings.target]
    shared = different_beside(settings.target, beside, comparisons)
    aim = MOST_DIFFERENT if comparisons <= 200 else round(MOST_DIFFERENT * comparisons / 200)
    return [
        Figure("called different from itself, quiet", quiet, "", f"of {comparisons}", ("≤", aim)),
        Figure("called different from itself, busy", loaded, "", f"of {comparisons}; {load}", ("≤", aim)),
        Figure(
            "called different from itself, by judges that share the device",
            shared,
            "",
            f"of {comparisons // beside * beside} by {beside} judges",
            ("≤", aim),
        ),
        Figure(
            "the slower kernel", effect, "times", f"as long, measured: {extra} of {ROWS[settings.target]} rows again"
        ),
        Figure("slower kernel told apart, quiet", told * 100, "%", "of 40 comparisons", ("≥", 90)),
        Figure("slower kernel told apart, busy", told_loaded * 100, "%", "of 40 comparisons"),
        Figure("one comparison", seconds, "s", f"{bench.rounds} rounds, as in the full tier"),
    ]


class Bench:
    """The norm open in this process, and two runners that hold it."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._folder = tempfile.TemporaryDirectory(prefix="ka-bench-")
        with norm_environment(target, Path(self._folder.name)) as environment:
            self._command = environment._runner_command()
            self._device = environment.device
            self._binary = environment.binaries(norm(target))

    def __enter__(self) -> Self:
        from kernel_assistant.worker.pinning import import_torch

        import_torch()
        import torch

        from kernel_assistant.worker.cases import Case, fresh_seed
        from kernel_assistant.worker.open_task import open_task
        from kernel_assistant.worker.profiling import ROUNDS, Profiler
        from kernel_assistant.worker.roofline import Ceilings
        from kernel_assistant.worker.runner_client import RunnerClient, RunnerCommand
        from kernel_assistant.worker.verification import expect

        place = f"cuda:{self._device.index}" if self.target == "cuda" else "cpu"
        task = open_task(to_builtins(norm_task(self.target)), place)
        base = expect(task, Case(0, "declared", None, fresh_seed()))
        assert base is not None
        ceilings = Ceilings(self._device.copy_bandwidth, self._device.read_bandwidth, 0.0, self._device.cache_bytes)
        # On the CPU a judge's client takes the lock for it.
        self.lock = lock_of(self._device)
        self.profiler = Profiler(
            task, base, ceilings, self.target, lock=self.lock if self.target == "cuda" else DeviceLock()
        )
        command = RunnerCommand(
            tuple(self._command["argv"]), self._command["env"], self.target, self._command["device"]
        )
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
        self._folder.cleanup()

    def compare(self, extra: int) -> tuple[float, float, float]:
        """(slowdown of the kernel with extra rows, its 99.9% interval), in one comparison of the full protocol."""
        from kernel_assistant.worker.statistics import judged_interval

        plain, other = self._subject(0, 0), self._subject(1, extra)
        plain.name = "twin"
        with self.lock.exclusive() if self.target == "cpu" else nullcontext():
            series = self.profiler.compare(other, plain, [], lambda first, count: None)
        return judged_interval(series.ratios("candidate", "twin"))

    def different(self, comparisons: int) -> int:
        """How often the kernel is called different from itself."""
        found = 0
        for _ in range(comparisons):
            ratio, low, high = self.compare(0)
            found += measurably_faster(ratio, (low, high)) or measurably_slower(ratio, (low, high))
        return found

    def calibrate(self, repeats: int) -> tuple[int, float]:
        """(rows to compute again for 3% more time, what that was measured to be)."""
        probe = ROWS[self.target] // 8
        slope = (median([self.compare(probe)[0] for _ in range(repeats)]) - 1) / probe
        extra = max(1, round((SLOWER - 1) / max(slope, 1e-9)))
        return extra, median([self.compare(extra)[0] for _ in range(repeats)])

    def told_apart(self, extra: int, comparisons: int) -> float:
        """Share of comparisons in which the slower kernel is called slower."""
        found = 0
        for _ in range(comparisons):
            ratio, low, high = self.compare(extra)
            found += measurably_faster(ratio, (low, high))
        return found / comparisons

    def _subject(self, which: int, extra: int) -> Any:
        from kernel_assistant.worker.timing import PlanSubject

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


def different_beside(target: str, judges: int, comparisons: int) -> int:
    """How often a kernel is called different from itself by so many judges at once, in processes of their own."""
    command = [sys.executable, "-m", "bench.judge_itself", target, str(comparisons // judges)]
    environment = {**os.environ, GPU_SHARE: str(round(0.8 / judges, 3))}
    processes = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(judges)]
    return sum(int(process.communicate()[0].split()[-1]) for process in processes)


@contextmanager
def busy(target: str) -> Iterator[str]:
    """Somebody else's work on the machine: a spinning process for each second core, or a GPU that is used by halves."""
    programs = [GPU_LOAD] if target == "cuda" else [CPU_LOAD] * max(1, (os.cpu_count() or 2) // 2)
    processes = [subprocess.Popen([sys.executable, "-c", program]) for program in programs]
    try:
        time.sleep(10 if target == "cuda" else 1)
        yield _load_words(target, len(processes))
    finally:
        for process in processes:
            process.kill()
            process.wait()


CPU_LOAD = "while True: pass"
#: About half a millisecond of products, as long a pause.
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


def _load_words(target: str, processes: int) -> str:
    if target == "cpu":
        return f"{processes} processes that spin"
    from kernel_assistant.targets import cuda

    return f"another process uses the GPU, {cuda.load(0)[0]}% busy by the driver"


if __name__ == "__main__":
    with Bench(sys.argv[1]) as judge:
        print(judge.different(int(sys.argv[2])))
