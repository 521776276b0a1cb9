"""What a training loop tells of itself and is told by people: docs/training_metrics.md."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from kernel_assistant.errors import StoreError, boundary
from kernel_assistant.session.training_run import METRICS, RunState, Wish, ask, wish_of, write_status
from kernel_assistant_training.tracking.events import Events, wanted

LOOK_EVERY_S, SAY_EVERY_S = 1.0, 10.0


class RunControl:
    """Of one stage in folder `run`. As a context it says how the stage ended; an exception makes that `failed`.

    `paused_s` is how long it was paused so far, for clocks that do not count it. Raises StoreError where a file cannot
    be written.
    """

    def __init__(self, run: Path, stage: str) -> None:
        self._run, self._stage = run, stage
        self._step = 0
        self._looked = self._said = 0.0
        self._stopped = False
        self._events = Events(run, stage) if wanted() else None
        self.paused_s = 0.0

    def __enter__(self) -> Self:
        ask(self._run, Wish.go_on)
        self._say(RunState.running)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._events is not None:
            self._events.close()
        if isinstance(error, KeyboardInterrupt):
            self._say(RunState.stopped, "interrupted")
            return
        if error is not None:
            lines = str(error).splitlines()
            self._say(RunState.failed, f"{type(error).__name__}: {lines[0] if lines else ''}")
            return
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
        self._stopped = wish is Wish.stop
        return not self._stopped

    def _wait(self, sleep: Callable[[float], None]) -> Wish:
        began = time.monotonic()
        self._say(RunState.paused)
        while (wish := wish_of(self._run)) is Wish.pause:
            sleep(LOOK_EVERY_S / 2)
        self.paused_s += time.monotonic() - began
        self._say(RunState.running)
        return wish

    def _say(self, state: RunState, message: str = "") -> None:
        self._said = time.monotonic()
        write_status(self._run, self._stage, state, self._step, message)
