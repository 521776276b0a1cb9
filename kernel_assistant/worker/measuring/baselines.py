"""Provides the baselines of a task, eager mode and torch.compile, as callables, and measures their times."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ..opening.open_steps import tensors_of
from ..process.pinning import pinned
from ..verifying.numerics import is_as_inexact
from ..verifying.verification import ExpectedOutputs
from .compiled import NotCompiledError, compiled_call, released_while_compiling
from .nominal import NominalSubject
from .passes import TimedPasses
from .statistics import faster_half, median
from .task_sets import TaskSets
from .timing import TimedSubject, TorchSubject, block_length

#: Blocks of a baseline that is timed alone.
BASELINE_BLOCKS, QUICK_BASELINE_BLOCKS = 10, {"cpu": 10, "cuda": 3}
#: A baseline that takes longer is not timed beside what is compared with it.
MOST_BESIDE_SECONDS = 0.05


class Baselines:
    """The baselines "eager" and "compile" of one task. They are timed on the task's sets (a set is one copy of the
    inputs and outputs). With `quick_only` they are timed as briefly as candidates are in the quick tier. With
    `nominal`, times come from `nominal.py`, which invents them for tests, and torch.compile does not run."""

    def __init__(self, task_sets: TaskSets, *, quick_only: bool, nominal: bool) -> None:
        self.task_sets, self.nominal = task_sets, nominal
        self._blocks = QUICK_BASELINE_BLOCKS[task_sets.target] if quick_only else BASELINE_BLOCKS
        #: Seconds a call of each baseline that was timed, as last measured.
        self.seconds: dict[str, float] = {}
        self._callables: dict[str, Callable[..., Any]] = {"eager": task_sets.task.model}
        #: Why torch.compile cannot compile the module, "" where it can or was not asked to.
        self.uncompiled = ""

    def prepare(self, which: str) -> None:
        """Compiles the module, with all cores, if `which` is "compile"; nothing is timed. If the module cannot be
        compiled, `uncompiled` says why afterwards, and there is no such baseline."""
        if which in self._callables or self.uncompiled:
            return
        try:
            compiled_call(self._compile)
        except NotCompiledError as error:
            self.uncompiled = str(error)
            self._callables.pop(which, None)

    def _compile(self) -> None:
        model = self.task_sets.task.model
        self._callables["compile"] = model if self.nominal else torch.compile(model)
        subject = self.subject("compile")
        with torch.no_grad(), released_while_compiling(self.task_sets.lock):
            subject.run(0, 1)
        subject.release()

    def compiled_is_as_inexact(self, expected: ExpectedOutputs) -> bool:
        """Whether the error of each output of torch.compile against float64 is at least half that of
        `expected.reference`. An output is not checked if `expected.reference` equals eager mode's result there. False
        if there is no compiled module, or too little memory to run it."""
        compiled, task = self._callables.get("compile"), self.task_sets.task
        if compiled is None:
            return False
        args, kwargs = task.unflatten(expected.tensors)
        try:
            with torch.no_grad():
                # As the reference's call, with the same values of the buffers that forward changes.
                outputs = task.held.call(task.model, lambda: tuple(tensors_of(compiled(*args, **kwargs))))
                eager = task.call(args, kwargs)
        except torch.OutOfMemoryError:
            return False
        four = zip(outputs, expected.reference, expected.want, eager, strict=True)
        return all(torch.equal(usual, least) or is_as_inexact(one, least, want) for one, least, want, usual in four)

    def measure(self, which: str) -> float | None:
        """Returns the typical seconds per call of `which`, "eager" or "compile", from a few short blocks of calls.
        Measures only once. Returns None if the module cannot be compiled."""
        self.prepare(which)
        if which not in self._callables:
            return None
        if which not in self.seconds:
            subject = self.subject(which)
            with torch.no_grad():
                subject.run(0, 1)
                on_cpu = self.task_sets.target == "cpu"
                self.seconds[which] = self._short_passes(subject) if on_cpu else self._short(subject)
            subject.release()
        return self.seconds[which]

    def subject(self, which: str) -> TorchSubject:
        """Returns the baseline `which` in the form in which it is timed, on the task's sets."""
        return TorchSubject(which, self._callables[which], self.task_sets.calls(), self.task_sets.target)

    def on_clock(self, subject: TimedSubject) -> TimedSubject:
        """Returns the subject as it is to be timed: in a `NominalSubject`, which reports invented times, if `nominal`
        is set, otherwise unchanged."""
        return NominalSubject(subject) if self.nominal else subject

    @pinned()
    def _short(self, subject: TimedSubject) -> float:
        """Returns the median seconds per call over a few blocks (several calls in a row, timed together). The device is
        held exclusively for all of them."""
        subject, count = self.on_clock(subject), self.task_sets.sets.count
        times = []
        with self.task_sets.lock.exclusive():
            subject.wake()
            length = block_length(subject, count, self.task_sets.block_seconds)
            for index in range(self._blocks):
                self.task_sets.values.evict()
                subject.wake()
                times.append(subject.run((index * length) % count, length) / length)
        return median(times)

    @pinned()
    def _short_passes(self, subject: TimedSubject) -> float:
        """Returns the seconds per call over a few passes; in a pass, each subject runs one block of calls. If eager
        mode has been timed and is short, it runs in the same passes, and the result is the ratio of both times
        multiplied by the known time of eager mode."""
        known = self.seconds.get("eager", math.inf)
        beside = [self.subject("eager")] if known <= MOST_BESIDE_SECONDS else []
        lock = self.task_sets.lock
        with lock.exclusive():
            passes = TimedPasses([self.on_clock(one) for one in (subject, *beside)], self.task_sets.sets.count)
        rows: list[dict[str, float]] = []
        for _ in range(self._blocks):
            with lock.exclusive():
                rows.append(passes.one()[0])
        for one in beside:
            one.release()
        return ratio_to_eager(rows, subject.name) * (known if beside else 1.0)


def ratio_to_eager(rows: list[dict[str, float]], name: str = "candidate") -> float:
    """Returns the time of the subject `name` divided by that of eager mode. `rows` has the seconds per call by subject,
    one dict for each pass; the time of a subject is the mean of the faster half of its passes. For eager mode itself,
    and if it is not in `rows`, returns the subject's seconds per call instead."""
    times = faster_half([one[name] for one in rows])
    return times / faster_half([one["eager"] for one in rows]) if name != "eager" and "eager" in rows[0] else times
