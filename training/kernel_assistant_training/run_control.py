"""Lets a training loop report its state and receive commands: docs/training_metrics.md, docs/training_failures.md."""

from __future__ import annotations

import contextlib
import json
import math
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from kernel_assistant.errors import StoreError, boundary
from kernel_assistant.session.training_run import METRICS, RunState, TrainingCommand, ask, command_of, write_status
from kernel_assistant_training.interrupts import Interrupted, SignalHandling, raised
from kernel_assistant_training.tracking.events import Events, wanted

LOOK_EVERY_S, SAY_EVERY_S = 1.0, 10.0
#: A terminal's Ctrl-C that a parent forwards arrives twice within this time; a later signal is a second one.
SAME_S = 2.0
#: Seconds after a signal until a step that does not end is interrupted.
GRACE_S = 60


class RunControl:
    """Controls one stage in the folder `run`. As a context manager it records how the stage ended: `failed` after an
    exception that is not an interrupt.

    A signal requests a stop: training ends after its step, and the end of the context raises Interrupted. Interrupted
    is raised earlier, in the main thread, at a second signal or one minute after the first; if `at_once`, at the first
    signal. `paused_s` is the time of all pauses, for clocks that exclude it. Raises StoreError if a file cannot be
    written.
    """

    def __init__(self, run: Path, stage: str, *, at_once: bool = False) -> None:
        self._run, self._stage, self._at_once = run, stage, at_once
        self._step = 0
        self._checked = self._written = self._signalled = 0.0
        self._stopped = False
        self._signal = 0
        self._answering = SignalHandling(self._hear)
        self._events = Events(run, stage) if wanted() else None
        self.paused_s = 0.0

    @property
    def interrupted(self) -> bool:
        """Whether a signal has come. If so, no further work should follow training."""
        return bool(self._signal)

    @property
    def stopped(self) -> bool:
        """Whether a stop was requested, by a signal or a command."""
        return self._stopped

    def __enter__(self) -> Self:
        ask(self._run, TrainingCommand.go_on)
        drop_half_a_line(self._run / METRICS)
        self._say(RunState.running)
        self._answering.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._answering.__exit__()
        if self._signal:
            signal.alarm(0)
        if self._events is not None:
            self._events.close()
        if error is not None:
            # The error of the stage is reported even if the disk is full.
            with contextlib.suppress(StoreError):
                self._say(*_ending(error))
            return
        if self._signal:
            self._say(RunState.stopped, "interrupted")
            raise Interrupted(self._signal)
        self._say(RunState.stopped if self._stopped else RunState.ended)
        ask(self._run, TrainingCommand.go_on)

    def report(self, step: int, figures: Mapping[str, object]) -> None:
        """Writes a line of metrics and the TensorBoard event for `step`. Leaves out numbers that are not finite, which
        JSON lacks. Raises StoreError if they cannot be written."""
        self._step = step
        kept = {name: one for name, one in figures.items() if not isinstance(one, float) or math.isfinite(one)}
        now = round(time.time(), 3)
        line = {"stage": self._stage, "step": step, "time": now, **kept}
        path = self._run / METRICS
        with boundary(StoreError, f"cannot write {path}"), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if self._events is not None:
            numbers = {n: one for n, one in kept.items() if isinstance(one, (int, float)) and not isinstance(one, bool)}
            self._events.add(step, now, numbers)
        self._say(RunState.running)

    def goes_on(self, step: int, sleep: Callable[[float], None] = time.sleep) -> bool:
        """Returns whether to continue with the next step; False if a stop is requested. Call it between steps: during a
        pause it waits until the pause ends."""
        self._step = step
        if self._stopped or time.monotonic() - self._checked < LOOK_EVERY_S:
            return not self._stopped
        if time.monotonic() - self._written > SAY_EVERY_S:
            self._say(RunState.running)
        self._checked = time.monotonic()
        command = command_of(self._run)
        if command is TrainingCommand.pause:
            command = self._wait(sleep)
        self._stopped |= command is TrainingCommand.stop
        return not self._stopped

    def _hear(self, number: int) -> None:
        """Handles the signal `number` in the main thread: requests a stop, or raises Interrupted, as the class
        docstring describes."""
        again = bool(self._signal) and time.monotonic() - self._signalled > SAME_S
        if not self._signal:
            self._signal, self._signalled, self._stopped = number, time.monotonic(), True
        if self._at_once or again:
            raise Interrupted(number)
        signal.signal(signal.SIGALRM, lambda alarm, frame: raised(number))
        signal.alarm(GRACE_S)

    def _wait(self, sleep: Callable[[float], None]) -> TrainingCommand:
        began = time.monotonic()
        self._say(RunState.paused)
        while (command := command_of(self._run)) is TrainingCommand.pause and not self._stopped:
            sleep(LOOK_EVERY_S / 2)
        self.paused_s += time.monotonic() - began
        self._say(RunState.running)
        return command

    def _say(self, state: RunState, message: str = "") -> None:
        self._written = time.monotonic()
        write_status(self._run, self._stage, state, self._step, message)


def _ending(error: BaseException) -> tuple[RunState, str]:
    if isinstance(error, KeyboardInterrupt):
        return RunState.stopped, "interrupted"
    lines = str(error).splitlines()
    return RunState.failed, f"{type(error).__name__}: {lines[0] if lines else ''}"


def drop_half_a_line(path: Path) -> None:
    """Removes an incomplete last line, which a killed process or a full disk left, because the next line would be
    appended to it."""
    if not path.is_file():
        return
    with boundary(StoreError, f"cannot mend {path}"), path.open("rb+") as file:
        head, end, _ = file.read().rpartition(b"\n")
        file.truncate(len(head) + len(end))
