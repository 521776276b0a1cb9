"""What a training loop tells of itself and is told by people: docs/training_metrics.md, docs/training_failures.md."""

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
from kernel_assistant.session.training_run import METRICS, RunState, Wish, ask, wish_of, write_status
from kernel_assistant_training.interrupts import Answering, Interrupted, raised
from kernel_assistant_training.tracking.events import Events, wanted

LOOK_EVERY_S, SAY_EVERY_S = 1.0, 10.0
#: What is told to everybody (a terminal's Ctrl-C, handed on by a parent) comes twice; a person who insists, later.
SAME_S = 2.0
#: After a signal, until a step that does not end is not waited for.
GRACE_S = 60


class RunControl:
    """Of one stage in folder `run`. As a context it says how the stage ended; an exception makes that `failed`.

    A signal is a wish to stop, after which the context is left by Interrupted; with `at_once`, for a second signal, and
    after a minute, that is raised where the main thread is. `paused_s` is how long it was paused so far, for clocks
    that do not count it. Raises StoreError where a file cannot be written.
    """

    def __init__(self, run: Path, stage: str, *, at_once: bool = False) -> None:
        self._run, self._stage, self._at_once = run, stage, at_once
        self._step = 0
        self._looked = self._said = self._signalled = 0.0
        self._stopped = False
        self._signal = 0
        self._answering = Answering(self._hear)
        self._events = Events(run, stage) if wanted() else None
        self.paused_s = 0.0

    @property
    def interrupted(self) -> bool:
        """Whether a signal came: what follows training is for another time."""
        return bool(self._signal)

    @property
    def stopped(self) -> bool:
        """Whether somebody wanted an end, by a signal or by the file."""
        return self._stopped

    def __enter__(self) -> Self:
        ask(self._run, Wish.go_on)
        _drop_half_a_line(self._run / METRICS)
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
            # What ended it is what is told, also where the disk is full.
            with contextlib.suppress(StoreError):
                self._say(*_ending(error))
            return
        if self._signal:
            self._say(RunState.stopped, "interrupted")
            raise Interrupted(self._signal)
        self._say(RunState.stopped if self._stopped else RunState.ended)
        ask(self._run, Wish.go_on)

    def report(self, step: int, figures: Mapping[str, object]) -> None:
        """A line of metrics, and TensorBoard's event of it. Without numbers that are not finite: JSON has none."""
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
        """Between steps: waits while somebody wants a pause, False where they want an end."""
        self._step = step
        if self._stopped or time.monotonic() - self._looked < LOOK_EVERY_S:
            return not self._stopped
        if time.monotonic() - self._said > SAY_EVERY_S:
            self._say(RunState.running)
        self._looked = time.monotonic()
        wish = wish_of(self._run)
        if wish is Wish.pause:
            wish = self._wait(sleep)
        self._stopped |= wish is Wish.stop
        return not self._stopped

    def _hear(self, number: int) -> None:
        """A signal, in the main thread."""
        again = bool(self._signal) and time.monotonic() - self._signalled > SAME_S
        if not self._signal:
            self._signal, self._signalled, self._stopped = number, time.monotonic(), True
        if self._at_once or again:
            raise Interrupted(number)
        signal.signal(signal.SIGALRM, lambda alarm, frame: raised(number))
        signal.alarm(GRACE_S)

    def _wait(self, sleep: Callable[[float], None]) -> Wish:
        began = time.monotonic()
        self._say(RunState.paused)
        while (wish := wish_of(self._run)) is Wish.pause and not self._stopped:
            sleep(LOOK_EVERY_S / 2)
        self.paused_s += time.monotonic() - began
        self._say(RunState.running)
        return wish

    def _say(self, state: RunState, message: str = "") -> None:
        self._said = time.monotonic()
        write_status(self._run, self._stage, state, self._step, message)


def _ending(error: BaseException) -> tuple[RunState, str]:
    if isinstance(error, KeyboardInterrupt):
        return RunState.stopped, "interrupted"
    lines = str(error).splitlines()
    return RunState.failed, f"{type(error).__name__}: {lines[0] if lines else ''}"


def _drop_half_a_line(path: Path) -> None:
    """What a kill or a full disk cut off would spoil the line that is written behind it."""
    if not path.is_file():
        return
    with boundary(StoreError, f"cannot mend {path}"), path.open("rb+") as file:
        head, end, _ = file.read().rpartition(b"\n")
        file.truncate(len(head) + len(end))
