"""Times the reference and the candidates of one task, on copies of inputs and outputs that are not in the cache."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ..device_lock import DeviceLock
from ..opening.open_task import OpenTask
from ..running.runner_client import EMPTY_BLOCKS, RunnerClient, descendants
from ..verifying.verification import ExpectedOutputs, IncorrectOutput, bind
from .baselines import Baselines
from .by_launch import times_by_launch
from .kernel_share import only_kernels, share_of_kernels
from .load import OtherLoad
from .possible_times import PossibleTimes
from .roofline import Roofline
from .set_values import SAMPLE_SECONDS
from .task_sets import TaskSets
from .tiers.full_tier import FULL, ONLY_MEASUREMENT, FullComparison, FullTier, MeasurementNumber
from .tiers.quick_tier import QuickTier
from .tiers.quick_timing import QuickTiming
from .timing import PlanSubject, claimed

#: Sets of residual calls' graphs that are made in one message, and seconds for all.
WARM_SETS, WARM_SECONDS = 4, 2.0


@dataclass(frozen=True)
class ReadyCandidate:
    """A candidate whose runner knows the addresses of the sets (copies of inputs and outputs). `quick` times it in the
    quick tier on a GPU, and is None otherwise. `prepare_seconds` is the time of the plan's `prepare` launches."""

    subject: PlanSubject
    quick: QuickTiming | None
    prepare_seconds: float


class Profiler:
    """Times the baselines and candidates of one task, at the sizes of its first workload.

    With `quick_only` there are only enough sets (copies of inputs and outputs) for the short blocks of calls of the
    quick tier; longer blocks use some sets twice, and baselines are timed as briefly as candidates are there. Blocks of
    the quick tier and rounds of the full tier hold `lock` exclusively. With `nominal`, times are those that
    `nominal.py` invents for tests, and torch.compile does not run."""

    #: Whether code of a candidate runs on the host side of a runner on a GPU.
    candidate_on_host = False
    baselines_class: type[Baselines] = Baselines

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
        self.target, self._nominal, self._by_launch = target, nominal, by_launch
        self.lock = lock or DeviceLock()
        self.possible = PossibleTimes(task, base, ceilings, self.lock)
        self.task_sets = TaskSets(
            task, base, self.possible, target, self.lock, quick_only=quick_only, numerics=numerics
        )
        self.sets, self.values, self.outputs = self.task_sets.sets, self.task_sets.values, self.task_sets.outputs
        self.baselines = self.baselines_class(self.task_sets, quick_only=quick_only, nominal=nominal)
        self.quick_tier = QuickTier(self.task_sets, self.baselines)
        self.full_tier = FullTier(self.task_sets, self.baselines)

    def prepare(self, which: str) -> None:
        """Compiles the module if `which` is "compile"; nothing is timed."""
        self.baselines.prepare(which)

    def compiled_is_as_inexact(self, expected: ExpectedOutputs) -> bool:
        """Whether torch.compile's outputs are about as inexact as PyTorch's outputs `expected.reference`: the error of
        each is at least half as large. The error is the 2-norm of the difference from the float64 outputs
        `expected.want`. `Baselines.compiled_is_as_inexact` lists special cases."""
        return self.baselines.compiled_is_as_inexact(expected)

    def baseline(self, which: str) -> dict[str, Any]:
        """Returns `ms`, the typical milliseconds per call of "eager" or "compile" (`which`), and `floor_ms`, the
        roofline. If the module cannot be compiled, returns only `failure`, which says why."""
        seconds = self.baselines.measure(which)
        if seconds is None:
            return {"failure": self.baselines.uncompiled}
        return {"ms": seconds * 1e3, "floor_ms": self.possible.floor_seconds * 1e3}

    def get_ready(self, runner: RunnerClient, plan: dict[str, Any], tier: str, timeout: float) -> ReadyCandidate:
        """Gives the runner the addresses of the sets (copies of inputs and outputs) for a verified candidate, and does
        everything else that has to precede timing in the tier "quick" or "full". `timeout` of a request is in
        seconds."""
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
                self.baselines.measure("eager")
                self.sets.poison(0xFF)
            if tier == "quick" and self.target == "cuda":
                # The lock is taken once for all of the quick tier: beside eleven judges, waiting for it at each block
                # took ten times as long as measuring.
                quick = self.quick_tier.timing(plan, together=not self.candidate_on_host)
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
        """Times a verified candidate. Returns a dict: `outcome`, `message`, `timing`, `share_in_our_kernels` (0 to 1)
        and `launches` (name and ms of each). Raises IncorrectOutput with outcome `cheating` or `inconclusive`, or
        CandidateFailure.

        A repeated `measurement` adds to the rounds of the previous one, which must be of the same candidate."""
        ready = ready or self.get_ready(runner, plan, tier, timeout)
        quick = ready.quick
        after = _thread_watch(runner, most_threads + (self.target == "cuda"))
        if self.target == "cuda" and plan.get("residual"):
            # PyTorch may start threads there at any time, and no code of a candidate runs on the host.
            after = _nothing
        others = OtherLoad([os.getpid(), *descendants(runner.process.pid)])
        with torch.no_grad(), self.lock.shared() if quick is None else self.lock.exclusive():
            subject = self._beside_baselines(ready.subject)
            timing = (
                self.quick_tier.measure(subject, after, quick)
                if tier == "quick"
                else self.full_tier.measure(subject, after, measurement, full)
            )
            timing["warning"] = others.warning() if self.target == "cpu" else ""
            seconds = timing["candidate_ms"] * 1e-3
            if not self._nominal:
                shortest = min(seconds, (timing.get("graph_ms") or math.inf) * 1e-3)
                self.possible.require(shortest, self.task_sets.footprint)
            if tier == "quick":
                self.quick_tier.best = min(self.quick_tier.best, seconds)
            share, parts = self._by_part(runner, plan, seconds, timeout)
        floor = self.possible.floor_of(seconds)
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

    def _time_empty_messages(self, subject: PlanSubject) -> None:
        """Times empty messages to the runner, whose time is subtracted from that of calls, while the device is held
        exclusively: those that were timed when the runner started may all have been slowed by other work."""
        with self.lock.exclusive():
            for _ in range(EMPTY_BLOCKS):
                subject.wake()

    def _by_part(
        self, runner: RunnerClient, plan: dict[str, Any], seconds: float, timeout: float
    ) -> tuple[float, list[dict[str, Any]]]:
        """Returns the share of time in generated kernels (0 to 1), and the name and ms of each launch (empty unless
        `by_launch` was set)."""
        if only_kernels(plan) and not self._by_launch:
            return 1.0, []
        with self.lock.exclusive():
            share = share_of_kernels(runner, plan, self.sets.count, seconds, timeout)
            # Measuring each launch takes longer than measuring the candidate did.
            parts = [] if not self._by_launch else times_by_launch(runner, plan, self.sets.count, seconds, timeout)
        return share, parts

    def close(self) -> None:
        self.task_sets.close()

    def _beside_baselines(self, subject: PlanSubject) -> PlanSubject:
        """Returns the candidate in the form in which it is timed beside the baselines; a subclass may wrap it."""
        return subject


def most_threads(runner: RunnerClient) -> int:
    """Returns the number of threads that a runner may have between calls: those that it has now plus those of the
    OpenMP pool. To be called before the OpenMP runtime starts its pool."""
    return runner.threads() + torch.get_num_threads() - 1


def _thread_watch(runner: RunnerClient, most: int) -> Callable[[], None]:
    """Returns a function to call after each timed block. It raises IncorrectOutput if the runner has more than `most`
    threads: then some run although no call was requested."""

    def check() -> None:
        if runner.threads() > most:
            raise IncorrectOutput("cheating", "threads of the candidate run on after its call")

    return check


def _nothing() -> None:
    pass


def summary(timing: dict[str, Any]) -> str:
    """Returns the times in one line for a log, such as `0.214 ms, eager 0.9, compile 0.198`."""
    compiled = timing.get("compile_ms")
    parts = [f"{timing['candidate_ms']:.4g} ms", f"eager {timing['eager_ms']:.4g}"]
    parts += [f"compile {compiled:.4g}"] if compiled else []
    return ", ".join(parts)
