"""Profiles the reference and candidates of one task on sets of inputs that are not in the cache."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from ..device_lock import DeviceLock
from ..opening.open_steps import tensors_of
from ..opening.open_task import OpenTask
from ..opening.task_checks import largest_value_bytes
from ..process.memory import available_bytes
from ..process.pinning import pinned
from ..process.worker_errors import TaskError, with_inputs
from ..running.buffer_sets import BufferSets
from ..running.runner_client import EMPTY_BLOCKS, RunnerClient, descendants
from ..verifying.numerics import is_as_inexact
from ..verifying.verification import (
    ExpectedOutputs,
    IncorrectOutput,
    all_finite,
    bind,
    made_sets,
)
from .arithmetic import counted
from .by_launch import times_by_launch
from .calibrate import calibrate
from .compiled import NotCompiledError, compiled_call, released_while_compiling
from .kernel_share import only_kernels, share_of_kernels
from .load import OtherLoad
from .nominal import NominalSubject
from .passes import BLOCK_SECONDS as PASS_SECONDS
from .passes import Block, TimedPasses, interleave
from .quick_timing import QuickTiming
from .repeated_measurement import interval_of
from .roofline import MEASURED_SLACK, Roofline, floor_seconds, impossible
from .set_values import SAMPLE_SECONDS, SetValues
from .statistics import bootstrapped, faster_half, median, relative_spread
from .suspicion import MOST_AGAIN, odd_clocks, odd_growth, until_plausible
from .timed_outputs import TimedOutputs
from .timing import BLOCK_SECONDS as CUDA_SECONDS
from .timing import (
    PlanSubject,
    Series,
    TimedSubject,
    TorchSubject,
    alternate,
    block_length,
    claimed,
)
from .traffic import Traffic

#: A launch takes about 8 µs on CUDA, so that 512 calls fill a block; each set costs time when a candidate is bound.
MOST_SETS = {"cpu": 2048, "cuda": 512}
#: Share of the free memory that the sets may take, beyond what is needed to exceed the cache.
SHARE_OF_MEMORY = {"cpu": 0.05, "cuda": 0.25}
#: Values of the largest size that a call may hold at once, of the reference and of a candidate together.
VALUES_INSIDE = 4
LEAST_FOOTPRINT = 128 << 20
BLOCK_SECONDS = {"cpu": PASS_SECONDS, "cuda": CUDA_SECONDS}
#: Divisor of the block length on a CPU for each repeat of an implausible series: a block of several time slices of the
#: kernel's scheduler always contains other work on a busy machine, a shorter one not always.
SHORTER = 2
#: Sets of residual calls' graphs that are made in one message, and seconds for all.
WARM_SETS, WARM_SECONDS = 4, 2.0
#: Many short rounds: on a shared machine one block in ten is disturbed, which affects its round only.
ROUNDS = {"cpu": 28, "cuda": 18}
QUICK_BLOCK_SECONDS = {"cpu": PASS_SECONDS, "cuda": 0.002}
#: Passes of the quick tier on a CPU. After the fewest of them a candidate that takes `FAR_BEHIND` times as long as the
#: task's best one is let go. A baseline that takes longer than `MOST_BESIDE_SECONDS` is not timed beside it.
QUICK_PASSES, FEWEST_PASSES, FAR_BEHIND, MOST_BESIDE_SECONDS = 10, 4, 1.3, 0.05
#: Bytes that are written between new values and a pass on a CPU, so that none is in the nearest caches. All of the last
#: one would take 40 ms, and make the first block behind it 10% slower (docs/experiments.md, 125).
NEAR_BYTES = 16 << 20
#: Seconds that the host needs at most to launch a kernel, and to have a library launch its own.
KERNEL_SECONDS, LIBRARY_SECONDS = 5e-6, 12e-6
#: Blocks of a baseline that is timed alone.
BASELINE_BLOCKS, QUICK_BASELINE_BLOCKS = 10, {"cpu": 10, "cuda": 3}
#: Seconds after which a series ends early, with the twelve rounds that the interval of a first measurement needs.
MOST_SECONDS = 10.0
#: Name of the declared inputs after their values have been changed and moved.
VARIED = "declared inputs with changed values"
#: Seconds for making other inputs of the task, for the integers of one block of the full tier; at most this share of
#: the time that it has.
FULL_SAMPLE_SECONDS, SAMPLE_SHARE = 0.1, 0.01
#: Number of a measurement, from 1, and the most that there are.
MeasurementNumber = tuple[int, int]
ONLY_MEASUREMENT: MeasurementNumber = (1, 1)


@dataclass(frozen=True)
class FullComparison:
    """How the full tier compares: beside torch.compile as well as eager, and for how many seconds at most, once it has
    the least number of rounds."""

    compiled: bool = True
    most_seconds: float = MOST_SECONDS


FULL = FullComparison()


@dataclass(frozen=True)
class ReadyCandidate:
    """A candidate that is bound to the sets, on a GPU with its timing in the quick tier. `prepare_seconds` are those
    of its `prepare`."""

    subject: PlanSubject
    quick: QuickTiming | None
    prepare_seconds: float


class Profiler:
    """Baselines and candidates of one task, at the sizes of its first workload.

    With `quick_only` there are only enough sets for the short blocks of the quick tier, and baselines are timed as
    briefly; longer blocks use some sets twice. Blocks of the quick tier and rounds of the full one hold `lock`
    exclusively. With `nominal` times are those of `nominal.py`, and torch.compile does not run.
    """

    #: Whether code of a candidate runs on the host side of a runner on a GPU.
    candidate_on_host = False

    def __init__(
        self,
        task: OpenTask,
        base: ExpectedOutputs,
        ceilings: Roofline,
        target: str,
        *,
        quick_only: bool = False,
        lock: DeviceLock | None = None,
        by_launch: bool = True,
        numerics: str = "kernelbench",
        nominal: bool = False,
    ) -> None:
        self.task, self.ceilings, self.target, self._nominal = task, ceilings, target, nominal
        self.lock, self._by_launch = lock or DeviceLock(), by_launch
        self._block_seconds = (QUICK_BLOCK_SECONDS if quick_only else BLOCK_SECONDS)[target]
        self._blocks = QUICK_BASELINE_BLOCKS[target] if quick_only else BASELINE_BLOCKS
        self._baseline: dict[str, float] = {}
        self._best = math.inf
        self._earlier: Series | None = None
        self._callables: dict[str, Callable[..., Any]] = {"eager": task.model}
        #: Why torch.compile cannot compile the module, "" where it can or was not asked to.
        self.uncompiled = ""
        used = {value["name"] for value in task.graph["inputs"]}
        given = [pair for pair in zip(task.input_names, base.tensors, strict=True) if pair[0] in used]
        traffic = Traffic.of(task.graph, base.dims, dict(given), base.constants)
        self.read_bytes = traffic.moved_bytes
        # A plan may compute something smaller from parameters, once, and read that at each call.
        self._changing_bytes = traffic.changing_bytes
        self.written_bytes = _bytes(base.reference)
        self._flops = counted(lambda: task.call(*task.unflatten(base.tensors))) if ceilings.flops else 0
        self.floor_seconds = floor_seconds(self.read_bytes, self.written_bytes, ceilings, self._flops)
        self.sets = self._make_sets(base)
        try:
            self.values = self._values(base)
        except BaseException:
            self.sets.close()
            raise
        self.outputs = TimedOutputs(task, self.sets, base, numerics)

    def _make_sets(self, base: ExpectedOutputs) -> BufferSets:
        """Enough sets to exceed the cache four times."""
        names = [f"out{index}" for index in range(len(base.reference))]
        return made_sets(self.task.input_names, names, base, self._count(_bytes([*base.tensors, *base.reference])))

    def _values(self, base: ExpectedOutputs) -> SetValues:
        """The sets' values: the declared inputs, varied as far as the module accepts it."""
        cache = 2 * self.ceilings.cache_bytes
        leading = [_leads_with_free(self.task.graph, name) for name in self.task.input_names]
        evicted = min(cache, NEAR_BYTES) if self.target == "cpu" else cache
        values = SetValues(self.task, self.sets, leading, base.tensors, evicted)
        with self.lock.shared():
            self.sets.write_all(base.tensors)
            values.refresh()
            for given_up in ("by_element", "integers_move"):
                if self._accepts(self.sets.inputs[0], base.reference):
                    break
                setattr(self.sets, given_up, False)
                values.refresh()
        return values

    def _accepts(self, tensors: list[torch.Tensor], usual: list[torch.Tensor]) -> bool:
        """Whether the module runs on varied inputs, with finite outputs where they usually are: some have a structure,
        such as a matrix that has to stay positive definite, or offsets that have to rise."""
        if VARIED in self.task.avoid:
            return False
        try:
            with with_inputs(VARIED):
                outputs = self.task.call(*self.task.unflatten(tensors))
        except (TaskError, RuntimeError):
            return False
        return all_finite(list(outputs)) or not all_finite(usual)

    def prepare(self, which: str) -> None:
        """Compile, if `which` is "compile", with all cores; nothing is timed. A module that cannot be compiled has
        `uncompiled` afterwards, and no such baseline."""
        if which in self._callables or self.uncompiled:
            return
        try:
            compiled_call(self._compile)
        except NotCompiledError as error:
            self.uncompiled = str(error)
            self._callables.pop(which, None)

    def _compile(self) -> None:
        self._callables["compile"] = self.task.model if self._nominal else torch.compile(self.task.model)
        subject = self._subject("compile")
        with torch.no_grad(), released_while_compiling(self.lock):
            subject.run(0, 1)
        subject.release()

    def compiled_is_as_inexact(self, expected: ExpectedOutputs) -> bool:
        """Whether the outputs of torch.compile are at least half as far from float64 as the reference; False if the
        memory to ask is missing."""
        compiled = self._callables.get("compile")
        if compiled is None:
            return False
        args, kwargs = self.task.unflatten(expected.tensors)
        try:
            with torch.no_grad():
                # As the reference's call, with the same values of the buffers that forward changes.
                outputs = self.task.held.call(self.task.model, lambda: tuple(tensors_of(compiled(*args, **kwargs))))
        except torch.OutOfMemoryError:
            return False
        three = zip(outputs, expected.reference, expected.want, strict=True)
        return all(is_as_inexact(*tensors) for tensors in three)

    def baseline(self, which: str) -> dict[str, Any]:
        """Median milliseconds a call over a few blocks. `which` is "eager" or "compile"; without a time, `failure` says
        why the module cannot be compiled."""
        self.prepare(which)
        if which not in self._callables:
            return {"failure": self.uncompiled}
        if which not in self._baseline:
            subject = self._subject(which)
            with torch.no_grad():
                subject.run(0, 1)
                self._baseline[which] = self._short_passes(subject) if self.target == "cpu" else self._short(subject)
            subject.release()
        return {"ms": self._baseline[which] * 1e3, "floor_ms": self.floor_seconds * 1e3}

    @pinned()
    def _short(self, subject: TimedSubject) -> float:
        """Median seconds a call over a few blocks, while the device lock is held once."""
        subject, count = self._on_clock(subject), self.sets.count
        times = []
        with self.lock.exclusive():
            subject.wake()
            length = block_length(subject, count, self._block_seconds)
            for index in range(self._blocks):
                self.values.evict()
                subject.wake()
                times.append(subject.run((index * length) % count, length) / length)
        return median(times)

    @pinned()
    def _short_passes(self, subject: TimedSubject) -> float:
        """Seconds a call over a few passes: eager's own, another baseline's by the ratio to eager, which runs beside
        it."""
        known = self._baseline.get("eager", math.inf)
        beside = [self._subject("eager")] if known <= MOST_BESIDE_SECONDS else []
        with self.lock.exclusive():
            passes = TimedPasses([self._on_clock(one) for one in (subject, *beside)], self.sets.count)
        found: list[dict[str, float]] = []
        for _ in range(self._blocks):
            with self.lock.exclusive():
                found.append(passes.one()[0])
        for one in beside:
            one.release()
        return _ratio(found, subject.name) * (known if beside else 1.0)

    def get_ready(self, runner: RunnerClient, plan: dict[str, Any], tier: str, timeout: float) -> ReadyCandidate:
        """Bind a verified candidate to the sets and do all that is not timed."""
        self.sets.rename_outputs([spec["name"] for spec in plan["outputs"]])
        looks = self.target == "cuda" and self.candidate_on_host
        subject = PlanSubject(runner, timeout, self.values.look_at_last if looks else None)
        quick = None
        with torch.no_grad(), self.lock.shared():
            prepare_seconds = claimed(bind(self.sets, runner, plan, self.lock).get("prepare_seconds"))
            if self.target == "cuda" and plan.get("residual"):
                # Graphs of residual calls are made when these are made again.
                until = time.monotonic() + WARM_SECONDS
                for first in range(0, self.sets.count, WARM_SETS):
                    count = min(WARM_SETS, self.sets.count - first)
                    if time.monotonic() < until:
                        subject.run(first, count)
                        subject.run(first, count)
            # Its threads could run while the baseline is timed.
            runner.freeze()
            if tier == "quick":
                self.values.sample_seconds = SAMPLE_SECONDS
                self.baseline("eager")
                self.sets.poison(0xFF)
            if tier == "quick" and self.target == "cuda":
                # The lock is taken once for all of the quick tier: beside eleven judges, waiting for it at each block
                # took ten times as long as measuring.
                quick = self._quick_timing(plan)
                quick.get_ready(subject)
            if not runner.timed_alone:
                self._time_empty_messages(subject)
                runner.timed_alone = self.target == "cuda" and not self.candidate_on_host
        return ReadyCandidate(subject, quick, prepare_seconds)

    def candidate(
        self,
        runner: RunnerClient,
        plan: dict[str, Any],
        tier: str,
        timeout: float,
        most_threads: int,
        measurement: MeasurementNumber = ONLY_MEASUREMENT,
        full: FullComparison = FULL,
        ready: ReadyCandidate | None = None,
    ) -> dict[str, Any]:
        """Timing of a verified candidate. Raises IncorrectOutput with outcome `cheating`, or CandidateFailure.

        A repeated `measurement` adds to the rounds of the previous one, which must be of the same candidate.
        """
        ready = ready or self.get_ready(runner, plan, tier, timeout)
        subject, quick = ready.subject, ready.quick
        after = _thread_watch(runner, most_threads + (self.target == "cuda"))
        if self.target == "cuda" and plan.get("residual"):
            # PyTorch may start threads there at any time, and no code of a candidate runs on the host.
            after = _nothing
        others = OtherLoad([os.getpid(), *descendants(runner.process.pid)])
        with torch.no_grad(), self.lock.shared() if quick is None else self.lock.exclusive():
            timing = (
                self._quick(subject, after, quick) if tier == "quick" else self._full(subject, after, measurement, full)
            )
            timing["warning"] = others.warning() if self.target == "cpu" else ""
            seconds = timing["candidate_ms"] * 1e-3
            self._require_possible(min(seconds, (timing.get("graph_ms") or math.inf) * 1e-3))
            self._best = min(self._best, seconds) if tier == "quick" else self._best
            share, parts = self._by_part(runner, plan, seconds, timeout)
        floor = self._floor(seconds)
        timing |= {
            "floor_ms": floor * 1e3,
            "roofline": floor / seconds,
            "prepare_ms": ready.prepare_seconds * 1e3,
        }
        return {
            "outcome": "correct",
            "message": summary(timing),
            "timing": timing,
            "share_in_our_kernels": share,
            "launches": parts,
        }

    def _quick_timing(self, plan: dict[str, Any]) -> QuickTiming:
        host_seconds = 0.0 if self._nominal else _host_seconds(plan)
        return QuickTiming(
            self.sets,
            self.values,
            self.outputs,
            QUICK_BLOCK_SECONDS[self.target],
            host_seconds,
            min(self._baseline["eager"], self._best),
            together=not self.candidate_on_host,
        )

    def _time_empty_messages(self, subject: PlanSubject) -> None:
        """Time them while the device is held: other work may have slowed all of them when the runner started."""
        with self.lock.exclusive():
            for _ in range(EMPTY_BLOCKS):
                subject.wake()

    def _by_part(
        self, runner: RunnerClient, plan: dict[str, Any], seconds: float, timeout: float
    ) -> tuple[float, list[dict[str, Any]]]:
        """The share of the time in our kernels, and the times of the launches if they were asked for."""
        if only_kernels(plan) and not self._by_launch:
            return 1.0, []
        with self.lock.exclusive():
            share = share_of_kernels(runner, plan, self.sets.count, seconds, timeout)
            # Measuring each launch takes longer than measuring the candidate did.
            parts = [] if not self._by_launch else times_by_launch(runner, plan, self.sets.count, seconds, timeout)
        return share, parts

    def too_fast(self, seconds: float) -> bool:
        """Whether a call in `seconds` is faster than the device can move the data."""
        footprint = self.sets.count * self.sets.bytes_per_set
        return impossible(seconds, self._changing_bytes, self.written_bytes, footprint, self.ceilings)

    def close(self) -> None:
        self.sets.close()

    def _floor(self, seconds: float) -> float:
        """The roofline of a candidate: the module's own; of inputs and outputs alone if the candidate is so much faster
        than that as errors of the bandwidths do not explain, so that it must do less work than the module says."""
        least = floor_seconds(self._changing_bytes, self.written_bytes, self.ceilings)
        return self.floor_seconds if seconds >= self.floor_seconds / MEASURED_SLACK else min(least, self.floor_seconds)

    def _require_possible(self, seconds: float) -> None:
        """Raise IncorrectOutput for a time that is faster than memory. Without a datasheet the bandwidths are measured
        again first; if other work disturbs that each time, the outcome is `inconclusive`."""
        if self._nominal or not self.too_fast(seconds):
            return
        sure = self.ceilings.datasheet > 0 or any(self._measure_ceilings() for _ in range(MOST_AGAIN))
        if self.too_fast(seconds):
            why = f"{seconds * 1e3:.4g} ms is faster than the device can move the data"
            raise (
                IncorrectOutput("cheating", why)
                if sure
                else IncorrectOutput("inconclusive", f"{why}, as measured on a busy machine")
            )

    def _measure_ceilings(self) -> bool:
        """Measure the roofline's bandwidths again and keep the higher values: other virtual machines on the host, which
        this one cannot see, may have slowed the first measurement. A candidate cannot raise them. False if other work
        disturbs it."""
        known, device = self.ceilings, torch.device(self.task.device)
        with self.lock.exclusive():
            now = calibrate(device.type, device.index or 0, known.cache_bytes)
        copy, read = max(known.copy, now["copy_bandwidth"]), max(known.read, now["read_bandwidth"])
        self.ceilings = replace(known, copy=copy, read=read, flops=max(known.flops, now["flops_fp32"]))
        self.floor_seconds = floor_seconds(self.read_bytes, self.written_bytes, self.ceilings, self._flops)
        return bool(now["quiet"])

    @pinned()
    def _quick(self, subject: PlanSubject, after: Callable[[], None], quick: QuickTiming | None) -> dict[str, Any]:
        if quick is None:
            seconds, noise, samples = self._quick_passes(subject, after)
            return self._quick_figures(seconds, None, noise, samples)
        found = quick.measure(subject, self._on_clock(subject), after)
        quick.check(subject)
        # A call cannot be faster than in a graph, where nothing waits for the host.
        seconds = max(found.seconds, found.graph_seconds or 0.0)
        return self._quick_figures(seconds, found.graph_seconds, found.noise, found.samples)

    def _quick_figures(self, seconds: float, graph: float | None, noise: float, samples: int) -> dict[str, Any]:
        return {
            "candidate_ms": seconds * 1e3,
            "graph_ms": graph * 1e3 if graph else None,
            "eager_ms": self._baseline["eager"] * 1e3,
            "compile_ms": self._baseline["compile"] * 1e3 if "compile" in self._baseline else None,
            "speedup_vs_eager": self._baseline["eager"] / seconds,
            "speedup_vs_compile": self._baseline["compile"] / seconds if "compile" in self._baseline else None,
            "noise": noise,
            "samples": samples,
        }

    def _quick_passes(self, subject: PlanSubject, after: Callable[[], None]) -> tuple[float, float, int]:
        """Seconds a call, its noise and the number of passes: the ratio to eager, which runs beside it, times eager's
        time when the task was opened. So candidates that are timed minutes apart are compared by what the machine did
        meanwhile, too. A baseline that takes long is not repeated."""
        eager = self._subject("eager")
        subjects: list[TimedSubject] = [subject, eager] if self._baseline["eager"] <= MOST_BESIDE_SECONDS else [subject]
        with self.lock.exclusive():
            subject.wake()
            renew = partial(self._prepare_pass, subject)
            passes = TimedPasses([self._on_clock(one) for one in subjects], self.sets.count, prepare=renew)
            # The candidate sees the first sets before their values change: if it remembers results by address, its
            # outputs are wrong then.
            subject.run(0, passes.lengths[subject.name])
        unit = self._baseline["eager"] if len(subjects) == 2 else 1.0
        found: list[dict[str, float]] = []
        while len(found) < QUICK_PASSES:
            if len(found) >= FEWEST_PASSES and unit * _ratio(found) > FAR_BEHIND * self._best:
                break
            with self.lock.exclusive():
                per_call, mine = passes.one()
            found.append(per_call)
            after()
            self.values.require_written()
            self.outputs.check(subject, {(mine.first + random.SystemRandom().randrange(mine.calls)) % self.sets.count})
        eager.release()
        seconds = unit * _ratio(found)
        return seconds, bootstrapped(found, _ratio), len(found)

    def _full(
        self,
        subject: PlanSubject,
        after: Callable[[], None],
        measurement: MeasurementNumber = ONLY_MEASUREMENT,
        full: FullComparison = FULL,
    ) -> dict[str, Any]:
        self.baseline("eager")
        if full.compiled:
            self.baseline("compile")
        self.values.sample_seconds = min(FULL_SAMPLE_SECONDS, SAMPLE_SHARE * full.most_seconds)
        known = ["compile", "eager"] if full.compiled and not self.uncompiled else ["eager"]
        baselines = [self._subject(which) for which in known]

        def check(first: int, count: int, compared: bool) -> None:
            after()
            if not compared:
                return
            last = (first + count - 1) % self.sets.count
            other = (first + random.SystemRandom().randrange(count)) % self.sets.count
            self.outputs.check(subject, {last, other})

        series = until_plausible(
            lambda repeat: self.compare(
                subject, baselines[0], list(baselines[1:]), check, repeat=repeat, most_seconds=full.most_seconds
            ),
            odd_growth,
        )
        series = self._with_earlier_rounds(series, measurement)
        for baseline in baselines:
            baseline.release()
        mine, plain = (median(series.seconds(name)) for name in ("candidate", "eager"))
        if self.target == "cuda" and not self._nominal:
            with self.lock.exclusive():
                until_plausible(lambda repeat: odd_clocks(subject, mine), str)
        by_eager, eager_low, eager_high = interval_of(series, "eager", "candidate", *measurement)
        self._baseline = {"eager": plain}
        return {
            "candidate_ms": mine * 1e3,
            "eager_ms": plain * 1e3,
            "speedup_vs_eager": by_eager,
            "speedup_vs_eager_ci": [eager_low, eager_high],
            "noise": relative_spread(series.seconds("candidate")),
            "samples": series.calls,
            **(self._over_compile(series, measurement) if "compile" in known else {}),
        }

    def _over_compile(self, series: Series, measurement: MeasurementNumber) -> dict[str, Any]:
        """The figures over torch.compile."""
        theirs = median(series.seconds("compile"))
        speedup, low, high = interval_of(series, "compile", "candidate", *measurement)
        self._baseline["compile"] = theirs
        return {"compile_ms": theirs * 1e3, "speedup_vs_compile": speedup, "speedup_vs_compile_ci": [low, high]}

    def _with_earlier_rounds(self, series: Series, measurement: MeasurementNumber) -> Series:
        """The series, preceded by the rounds of the candidate's earlier measurements; the first measurement has
        none.
        """
        self._earlier = series if measurement[0] == 1 or self._earlier is None else series.behind(self._earlier)
        return self._earlier

    def compare(
        self,
        subject: PlanSubject,
        baseline: TimedSubject,
        others: list[TimedSubject],
        check: Callable[[int, int, bool], None],
        *,
        repeat: int = 0,
        most_seconds: float = MOST_SECONDS,
    ) -> Series:
        """The rounds of the full protocol; `check(first, count, compared)` checks the block that was just timed,
        and compares its values if the flag says so.

        A `repeat` of an implausible series has shorter blocks. After `most_seconds` the least number of rounds is
        enough.
        """
        clocked, clocks = self._on_clock(subject), [self._on_clock(other) for other in (baseline, *others)]

        def check_pass(mine: Block, compared: bool) -> None:
            self.values.require_written()
            check(mine.first, mine.calls, compared)

        if self.target == "cpu":
            return interleave(
                clocked,
                clocks,
                sets=self.sets.count,
                rounds=ROUNDS["cpu"],
                most_seconds=min(most_seconds, MOST_SECONDS),
                block_seconds=PASS_SECONDS / SHORTER**repeat,
                lock=self.lock,
                prepare=partial(self._prepare_pass, subject),
                checked=check_pass,
            )
        unseen = False

        def renew_all(first: int) -> None:
            nonlocal unseen
            self.values.refresh(first)
            unseen = True

        def prepare(first: int, count: int) -> None:
            # The candidate may know all values that were in memory while its process could run.
            nonlocal unseen
            block = self.sets.around(first, count)
            if not unseen or self.values.integers_vary:
                self.values.renew(block)
            else:
                self.values.evict()
            self.values.mark(block)
            unseen = False

        def checked(first: int, count: int) -> None:
            self.values.require_written()
            check(first, count, True)

        return alternate(
            clocked,
            clocks[0],
            clocks[1:],
            sets=self.sets.count,
            rounds=ROUNDS[self.target],
            most_seconds=min(most_seconds, MOST_SECONDS),
            lock=self.lock,
            before_round=renew_all,
            before_candidate=prepare,
            before_others=self.values.evict,
            after_candidate=checked,
        )

    def _subject(self, which: str) -> TorchSubject:
        calls = [self.task.unflatten(row) for row in self.sets.inputs]
        return TorchSubject(which, self._callables[which], calls, self.target)

    def _on_clock(self, subject: TimedSubject) -> TimedSubject:
        return NominalSubject(subject) if self._nominal else subject

    def _prepare_pass(self, subject: PlanSubject, whole: Block, mine: Block) -> None:
        """New values for all blocks of a pass, behind the candidate's last moment of work, and marks in its outputs."""
        subject.rest()
        self.values.renew(self.sets.around(*whole))
        self.values.mark(self.sets.around(*mine))

    def _count(self, size: int) -> int:
        """Number of sets that exceed the cache four times and fill a block without a repeat, as far as memory
        allows."""
        size = max(size, 1)
        beyond_cache = max(4 * self.ceilings.cache_bytes, LEAST_FOOTPRINT) // size + 1
        a_block = int(self._block_seconds / self.floor_seconds) if self.floor_seconds else 0
        inside = largest_value_bytes(self.task.traced.program)
        room = room_for_sets(available_bytes(self.task.device), inside, self.target) // size
        return max(2, min(max(beyond_cache, min(a_block, room)), MOST_SETS[self.target]))


def _ratio(found: list[dict[str, float]], name: str = "candidate") -> float:
    """The time of a subject over eager's, each by the faster half of its passes; its time, where it ran alone."""
    times = faster_half([one[name] for one in found])
    return times / faster_half([one["eager"] for one in found]) if name != "eager" and "eager" in found[0] else times


def _host_seconds(plan: dict[str, Any]) -> float:
    """Seconds for which the host launches during a call, at most."""
    return sum(LIBRARY_SECONDS if launch.get("library") else KERNEL_SECONDS for launch in plan.get("launches", ()))


def most_threads(runner: RunnerClient) -> int:
    """The threads of a runner between calls, if the OpenMP runtime has not started its own yet."""
    return runner.threads() + torch.get_num_threads() - 1


def _thread_watch(runner: RunnerClient, most: int) -> Callable[[], None]:
    """Returns a function to call after each block. It raises if the candidate has threads that run although no call was
    requested.
    """

    def check() -> None:
        if runner.threads() > most:
            raise IncorrectOutput("cheating", "threads of the candidate run on after its call")

    return check


def _nothing() -> None:
    pass


def room_for_sets(available: int, largest: int, target: str) -> int:
    """Bytes for sets beyond those that the cache demands, where `largest` is the largest value inside the module:
    reference and candidate each write several like it at a time."""
    return int(SHARE_OF_MEMORY[target] * max(available - VALUES_INSIDE * largest, 0))


def summary(timing: dict[str, Any]) -> str:
    """The times in one line for a log, such as `0.214 ms, eager 0.9, compile 0.198, floor 0.12`."""
    compiled = timing.get("compile_ms")
    parts = [f"{timing['candidate_ms']:.4g} ms", f"eager {timing['eager_ms']:.4g}"]
    parts += [f"compile {compiled:.4g}"] if compiled else []
    return ", ".join(parts)


def _leads_with_free(graph: dict[str, Any], name: str) -> bool:
    for value in graph["inputs"]:
        if value["name"] == name:
            shape = value["spec"]["shape"]
            return bool(shape) and not str(shape[0]).isdigit()
    return False


def _bytes(tensors: list[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
