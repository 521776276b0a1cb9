"""Opens a task (the user's module) in a worker process, and reports if the module hangs or ends the process."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernel_assistant.environment.job_clock import JobClock
from kernel_assistant.environment.worker_client import WorkerClient, WorkerEnded, WorkerTimeout
from kernel_assistant.environment.worker_template import UNKNOWN_STATUS
from kernel_assistant.errors import UsageError
from kernel_assistant.events import AnyEvent, Progress

OPEN_SECONDS = 600.0
#: Opening a task may always take this long: importing torch alone takes seconds.
LEAST_SECONDS = 30.0
#: A stage that lasts longer is reported, and again after 3, 9, 27, ... times as long.
SILENT_SECONDS = 5.0
#: Signals that a process causes itself. Others come from outside: from a system that is out of memory, or a person.
ITS_OWN = (
    *(signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGBUS, signal.SIGTRAP, signal.SIGSYS),
    *(signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2),
    *(signal.SIGXCPU, signal.SIGXFSZ),
)
#: The worker's stages, as words for messages.
STAGES = {
    "start": "started (it imports torch)",
    "import": "imported",
    "init": "built (__init__)",
    "inputs": "given its inputs",
    "forward": "called (forward)",
    "trace": "traced (forward)",
}
MOST_EFFECTS = 4
EXITS = "mend what exits or crashes in the module; what it said last is at the end of worker.log"
HANGS = "mend what hangs or takes long there, or give it a longer --budget"


def opening_seconds(clock: JobClock, *, again: bool = False) -> float:
    """Returns how many seconds opening a job's task may take. With `again` (the task is opened again in a new worker),
    at most until the job's limit."""
    if again:
        return min(OPEN_SECONDS, max(clock.until_limit(), 0.1))
    return min(OPEN_SECONDS, max(LEAST_SECONDS, clock.left()))


def open_task(
    worker: WorkerClient,
    params: dict[str, Any],
    cancel: threading.Event,
    seconds: float = OPEN_SECONDS,
    emit: Callable[[AnyEvent], None] | None = None,
) -> dict[str, Any]:
    """Calls the worker's method `open_task` and returns the answer. Raises as `call_naming_stages` does."""
    return call_naming_stages(worker, "open_task", params, cancel, seconds, emit)


def call_naming_stages(
    worker: WorkerClient,
    method: str,
    params: dict[str, Any],
    cancel: threading.Event,
    seconds: float = OPEN_SECONDS,
    emit: Callable[[AnyEvent], None] | None = None,
) -> dict[str, Any]:
    """Calls a method of the worker that imports, builds and calls the class of `params["task"]`; returns the answer.
    A stage that takes long is reported to `emit`.

    Raises UsageError if the module ended the process or took longer than `seconds`, else as `WorkerClient.call` does.
    """
    name = f"{Path(params['task']['path']).name}: {params['task']['class_name']}"
    telling = StageMessages(lambda: worker.stage, name, emit or (lambda event: None))
    try:
        return worker.call(method, params, timeout=seconds, cancel=cancel, idle=telling)
    except WorkerEnded as error:
        if error.status == UNKNOWN_STATUS or (error.status < 0 and -error.status not in ITS_OWN):
            raise
        how = f"status {error.status}" if error.status >= 0 else signal.Signals(-error.status).name
        stage = STAGES.get(worker.stage, "imported, built or called")
        raise UsageError(f"{name} ended the process with {how} while it was {stage}", EXITS) from error
    except WorkerTimeout as error:
        if worker.stage not in STAGES:
            raise
        raise UsageError(f"{name} was still being {STAGES[worker.stage]} after {seconds:.0f} s", HANGS) from error


def of_slow_opening(clock: JobClock, operators: int) -> str:
    """Returns a warning if opening the module has taken more than half of the budget, else "". `operators` is the
    number of operators in its graph."""
    spent = clock.budget - clock.left()
    if not math.isfinite(spent) or spent <= clock.budget / 2:
        return ""
    return (
        f"loading and tracing the module took {spent:.0f} s of the budget of {clock.budget:.0f} s "
        f"({operators} operators): little time is left to search"
    )


def of_side_effects(class_name: str, facts: dict[str, Any]) -> str:
    """Returns a warning in one line about the side effects of a module's forward; "" if there are none."""
    effects = [str(one) for one in facts.get("side_effects", ())]
    if not effects:
        return ""
    more = f" and {len(effects) - MOST_EFFECTS} more" if len(effects) > MOST_EFFECTS else ""
    return f"{class_name}.forward {', '.join(effects[:MOST_EFFECTS])}{more}: its kernels do not do that"


class StageMessages:
    """A callback that emits a progress event if a stage of opening a task takes long. The client calls it repeatedly
    while the worker sends nothing. `stage()` returns the name of the current stage."""

    def __init__(
        self,
        stage: Callable[[], str],
        name: str,
        emit: Callable[[AnyEvent], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask, self._name, self._emit, self._now = stage, name, emit, now
        self._stage, self._since, self._next = "", now(), SILENT_SECONDS

    def __call__(self) -> None:
        stage, lasted = self._ask(), self._now() - self._since
        if stage != self._stage:
            self._stage, self._since, self._next = stage, self._now(), SILENT_SECONDS
        elif stage in STAGES and lasted >= self._next:
            self._next *= 3
            message = f"{self._name} is still being {STAGES[stage]}, for {lasted:.0f} s until now"
            self._emit(Progress(phase="open", message=message))
