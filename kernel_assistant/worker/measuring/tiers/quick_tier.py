"""Times candidates in the quick tier: on a CPU, in passes (short blocks of calls) beside eager mode; on a GPU, in
blocks of calls and CUDA graphs (`quick_timing.py`)."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from ...process.pinning import pinned
from ..baselines import MOST_BESIDE_SECONDS, Baselines, ratio_to_eager
from ..passes import TimedPasses
from ..statistics import bootstrapped
from ..task_sets import QUICK_BLOCK_SECONDS, TaskSets
from ..timing import PlanSubject, TimedSubject
from .quick_timing import QuickTiming

#: Passes on a CPU. After the fewest of them a candidate that takes `FAR_BEHIND` times as long as the task's best one is
#: let go.
QUICK_PASSES, FEWEST_PASSES, FAR_BEHIND = 10, 4, 1.3
#: Seconds that the host needs at most to launch a kernel, and to have a library launch its own.
KERNEL_SECONDS, LIBRARY_SECONDS = 5e-6, 12e-6


class QuickTier:
    """Times the candidates of one task briefly, against baselines that were timed before."""

    def __init__(self, task_sets: TaskSets, baselines: Baselines) -> None:
        self._task_sets, self._baselines = task_sets, baselines
        #: Seconds a call of the task's best candidate so far.
        self.best = math.inf

    def timing(self, plan: dict[str, Any], *, together: bool) -> QuickTiming:
        """Returns the object that times one candidate on a GPU. `together` says that no code of the candidate can run
        between its blocks of timed calls."""
        host_seconds = 0.0 if self._baselines.nominal else _host_seconds(plan)
        return QuickTiming(
            self._task_sets.sets,
            self._task_sets.values,
            self._task_sets.outputs,
            QUICK_BLOCK_SECONDS[self._task_sets.target],
            host_seconds,
            min(self._baselines.seconds["eager"], self.best),
            together=together,
        )

    @pinned()
    def measure(self, subject: PlanSubject, after: Callable[[], None], quick: QuickTiming | None) -> dict[str, Any]:
        """Returns a dict with times in milliseconds (`candidate_ms`, `graph_ms`, `eager_ms`, `compile_ms`; None if not
        measured), the speed-ups, `noise` and `samples`; on a GPU, `quick` measures them. `after` is called after each
        timed block of calls. Raises IncorrectOutput."""
        if quick is None:
            seconds, noise, samples = self._passes(subject, after)
            return self._figures(seconds, None, noise, samples)
        times = quick.measure(subject, self._baselines.on_clock(subject), after)
        quick.check(subject)
        # A call cannot be faster than in a graph, where nothing waits for the host.
        seconds = max(times.seconds, times.graph_seconds or 0.0)
        return self._figures(seconds, times.graph_seconds, times.noise, times.samples)

    def _figures(self, seconds: float, graph: float | None, noise: float, samples: int) -> dict[str, Any]:
        known = self._baselines.seconds
        return {
            "candidate_ms": seconds * 1e3,
            "graph_ms": graph * 1e3 if graph else None,
            "eager_ms": known["eager"] * 1e3,
            "compile_ms": known["compile"] * 1e3 if "compile" in known else None,
            "speedup_vs_eager": known["eager"] / seconds,
            "speedup_vs_compile": known["compile"] / seconds if "compile" in known else None,
            "noise": noise,
            "samples": samples,
        }

    def _passes(self, subject: PlanSubject, after: Callable[[], None]) -> tuple[float, float, int]:
        """Returns the seconds per call, the noise and the number of passes. The time is the ratio to eager mode, which
        runs in the same passes, multiplied by eager mode's time when the task was opened. So candidates that are timed
        minutes apart can be compared although the machine's speed has changed. If eager mode takes long, it does not
        run again, and the time is the measured one."""
        eager, known = self._baselines.subject("eager"), self._baselines.seconds["eager"]
        lock, count = self._task_sets.lock, self._task_sets.sets.count
        subjects: list[TimedSubject] = [subject, eager] if known <= MOST_BESIDE_SECONDS else [subject]
        with lock.exclusive():
            subject.wake()
            renew = partial(self._task_sets.prepare_pass, subject)
            passes = TimedPasses([self._baselines.on_clock(one) for one in subjects], count, prepare=renew)
            # The candidate sees the first sets before their values change: if it remembers results by address, its
            # outputs are wrong then.
            subject.run(0, passes.lengths[subject.name])
        unit = known if len(subjects) == 2 else 1.0
        rows: list[dict[str, float]] = []
        while len(rows) < QUICK_PASSES:
            if len(rows) >= FEWEST_PASSES and unit * ratio_to_eager(rows) > FAR_BEHIND * self.best:
                break
            with lock.exclusive():
                per_call, mine = passes.one()
            rows.append(per_call)
            after()
            self._task_sets.values.require_written()
            checked = (mine.first + random.SystemRandom().randrange(mine.calls)) % count
            self._task_sets.outputs.check(subject, {checked})
        eager.release()
        seconds = unit * ratio_to_eager(rows)
        return seconds, bootstrapped(rows, ratio_to_eager), len(rows)


def _host_seconds(plan: dict[str, Any]) -> float:
    """Returns an upper estimate of the seconds that the host spends on the launches of one call."""
    return sum(LIBRARY_SECONDS if launch.get("library") else KERNEL_SECONDS for launch in plan.get("launches", ()))
