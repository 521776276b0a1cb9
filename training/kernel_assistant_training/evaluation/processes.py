"""Runs several processes of one stage at the same time; each evaluates candidates with its own worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from typing import TypeVarTuple

from kernel_assistant.errors import UsageError
from kernel_assistant_training.interrupts import Interrupted, belong_to_parent

Arguments = TypeVarTuple("Arguments")


def side_by_side(
    main: Callable[[*Arguments], None],
    parts: Sequence[tuple[*Arguments]],
    *,
    report: Callable[[], None] = lambda: None,
    seconds: float | None = None,
    again: Callable[[tuple[*Arguments], float], bool] = lambda part, lived: False,
) -> list[int]:
    """Runs `main` once for each tuple of arguments in `parts`, each in a process of its own, and waits until all
    processes have ended. Returns the exit codes of processes that failed.

    `report` is called when a process has ended, and every `seconds` seconds. A failed process is started again if
    `again`, called with the process's arguments and the seconds that it ran, returns True. All started processes end
    when the calling process ends.
    """
    context, failed = get_context("spawn"), list[int]()
    running: dict[SpawnProcess, tuple[tuple[*Arguments], float]] = {}

    def begin(part: tuple[*Arguments]) -> None:
        process = context.Process(target=_run, args=(main, part))
        process.start()
        running[process] = part, time.monotonic()

    try:
        for part in parts:
            begin(part)
        while running:
            wait([process.sentinel for process in running], seconds)
            for process in [one for one in running if not one.is_alive()]:
                process.join()
                part, began = running.pop(process)
                if process.exitcode:
                    failed.append(process.exitcode)
                    if again(part, time.monotonic() - began):
                        begin(part)
            report()
    finally:
        for process in running:
            process.terminate()
    return failed


def own_cores(processes: int, each: int, cores: Sequence[int]) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    """Divides `cores`. Returns for each process the `each` cores on which it measures, and the remaining cores, on
    which all processes compile. Raises UsageError if no core remains."""
    parts = [tuple(cores[number * each : (number + 1) * each]) for number in range(processes)]
    rest = tuple(cores[processes * each :])
    if not rest:
        cause = f"{processes} processes of {each} cores and a builder need more than {len(cores)} cores"
        raise UsageError(cause, "use fewer --processes or --cores")
    return parts, rest


def _run(main: Callable[[*Arguments], None], part: tuple[*Arguments]) -> None:
    belong_to_parent()
    try:
        main(*part)
    except Interrupted as error:
        raise SystemExit(error.exit_code) from error
