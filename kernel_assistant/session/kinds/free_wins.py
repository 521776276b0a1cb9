"""The step after the search that measures free wins: speed-ups without kernels, such as TF32. Decides which ones are
measured, in which order and for how long."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from kernel_assistant.environment.session import Environment
from kernel_assistant.errors import Cancelled, KernelAssistantError, WorkerError
from kernel_assistant.events import AnyEvent, FreeWinMeasured, Progress, Warned
from kernel_assistant.records import FreeWin
from kernel_assistant.records.codec import from_builtins
from kernel_assistant.records.free_win import COMPILE, TOGETHER
from kernel_assistant.store import JobOptions

#: Share of the job's budget, and the most seconds.
SHARE = 1 / 3
MOST_SECONDS = 60.0
#: Expected seconds of a compilation until one has been measured.
ASSUMED_SECONDS = 3.0
#: A costly change is expected to take this many times as long.
COSTLY = 4.0
#: Share of the remaining time in which a request should end. After the remaining time the worker is killed.
OF_WHAT_IS_LEFT = 0.8
NO_TIME = "not measured: no time"

_log = logging.getLogger(__name__)


def reserved_seconds(options: JobOptions) -> float:
    """Returns how many seconds of a job's budget are reserved for measuring free wins; 0 if they are not measured."""
    return min(SHARE * options.budget, MOST_SECONDS) if options.free_wins else 0.0


class FreeWinStep:
    """Measures the free wins of a task after the search, within `seconds`. `wins` has the results so far, also if the
    user cancels."""

    def __init__(self, environment: Environment, seconds: float, emit: Callable[[AnyEvent], None]) -> None:
        self._environment, self._emit = environment, emit
        self._deadline = time.monotonic() + seconds
        self._expected = ASSUMED_SECONDS
        self._lost = ""
        self.wins: list[FreeWin] = []

    def run(self) -> bool:
        """Measures every change that is applicable to the task. Returns False if the user cancelled. Other failures are
        reported in `wins` or by an event `Warned`."""
        try:
            if self._left() > 0:
                self._run()
            else:
                self._emit(Warned(message=f"changes that need no kernel are {NO_TIME}"))
        except Cancelled:
            return False
        except KernelAssistantError as error:
            _log.error("free wins: %s\n%s", error.cause, error.detail)
            self._emit(Warned(message=f"changes that need no kernel could not be measured: {error.cause}"))
        return True

    def _run(self) -> None:
        offered = self._call("free_wins", {})["offered"]
        for change in sorted(offered, key=lambda change: bool(change["costly"])):
            if change["costly"]:
                self._together()
            self._measure((change["name"],), change["write"], COSTLY if change["costly"] else 1.0)
        self._together()

    def _together(self) -> None:
        """Measures the combination of all changes that were measured, keep the results correct and are not slower. Does
        nothing for fewer than two changes, or if the same combination was measured before. Its result replaces that of
        an earlier combination, unless it could not be measured."""
        parts = [win for win in self.wins if win.passes and win.measured and not win.loses]
        names = tuple(win.name for win in parts if win.name not in (COMPILE, TOGETHER))
        write = " + ".join(names)
        before = [win for win in self.wins if win.name == TOGETHER]
        if len(names) < 2 or any(win.write == write for win in before):
            return
        self._measure(names, write, COSTLY if before else 1.0)
        if before:
            self.wins.remove(before[0] if self.wins[-1].measured else self.wins[-1])

    def _measure(self, names: tuple[str, ...], write: str, weight: float) -> None:
        name = names[0] if len(names) == 1 else TOGETHER
        self._emit(Progress(phase="free", message=f"measuring a change that needs no kernel: {name.replace('_', ' ')}"))
        win = self._asked(names, weight) or FreeWin(name=name, write=write, note=self._lost or NO_TIME)
        self.wins.append(win)
        self._emit(FreeWinMeasured(win=win))

    def _asked(self, names: tuple[str, ...], weight: float) -> FreeWin | None:
        """Measures the changes `names` together. Returns None if there is no time left or the worker was lost. It is
        expected to take `weight` times as long as an ordinary compilation."""
        if self._lost or self._left() < weight * self._expected:
            return None
        try:
            with self._environment.timed_by_judge():
                row = self._call("free_win", {"names": names, "seconds": OF_WHAT_IS_LEFT * self._left()})
        except WorkerError as error:
            # A slow change has used up the time; after a lost device or a crash there is no worker to measure with.
            _log.error("free win %s: %s\n%s", "+".join(names), error.cause, error.detail)
            self._lost = NO_TIME if self._left() <= 0 else f"not measured: {error.cause}"
            self._environment.worker.kill()
            return None
        seconds = float(row.pop("compile_seconds"))
        if names != (COMPILE,) and seconds:
            self._expected = seconds / weight
        return from_builtins(row, FreeWin)

    def _call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        worker, cancel = self._environment.worker, self._environment.cancel
        return worker.call(method, params, timeout=max(self._left(), 0.1), cancel=cancel)

    def _left(self) -> float:
        return self._deadline - time.monotonic()
