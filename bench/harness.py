"""The loop of every measurement of many cases: a row of JSON for each case, written as soon as it is measured.

Cases that are in the file already are left out, so a run that is killed loses one case of each thread. A case that
fails is a row with the `outcome` "failed". `markdown` makes a table of rows.
"""

from __future__ import annotations

import json
import math
import os
import queue
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar

from kernel_assistant.errors import KernelAssistantError
from kernel_assistant_training.episodes.lines import EpisodeFile, read_lines

Row = dict[str, Any]
Case = TypeVar("Case")
Context = TypeVar("Context")
Result = TypeVar("Result")
P = ParamSpec("P")


class RowFile:
    """Several threads may add rows. A line that a killed process did not finish is dropped with the first row added.
    What holds for all rows, such as the machine, is a line of its own: `{"about": …}`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._lines: EpisodeFile | None = None

    def read(self) -> list[Row]:
        """The rows; none if there is no file. Also reads a `.json` document with `rows`, as earlier versions wrote."""
        if self.path.suffix == ".json":
            return list(json.loads(self.path.read_text(encoding="utf-8"))["rows"])
        return [row for row in self._all() if "about" not in row]

    def about(self) -> Row:
        """What was written about all rows."""
        return next((row["about"] for row in self._all() if "about" in row), {})

    def describe(self, about: Row) -> None:
        """Writes what holds for all rows, unless a run before did."""
        if not self.about():
            self.add({"about": about})

    def add(self, row: Row) -> None:
        with self._lock:
            self._lines = self._lines or EpisodeFile(self.path)
            self._lines.add(row)

    def _all(self) -> list[Row]:
        return list(read_lines(self.path, Row)) if self.path.exists() else []


def measure_cases(
    cases: Sequence[tuple[Row, Case]],
    measure: Callable[[Case, Context], Row],
    out: RowFile,
    contexts: Sequence[AbstractContextManager[Context]],
    seconds: float = math.inf,
) -> list[Row]:
    """Measures each case whose key, the columns that name it, is not in `out` yet; returns the file's rows. Each of
    `contexts` is entered by a thread of its own, whose cases get it. No case begins after `seconds`."""
    known, until = out.read(), time.monotonic() + seconds
    left = [(key, case) for key, case in cases if not any(key.items() <= _comparable(row, key) for row in known)]
    print(f"{len(left)} cases to do, {len(cases) - len(left)} done before", flush=True)
    waiting = queue.SimpleQueue[tuple[Row, Case]]()
    for one in left:
        waiting.put(one)

    def work(opened: AbstractContextManager[Context]) -> None:
        with opened as context:
            while time.monotonic() < until:
                try:
                    key, case = waiting.get_nowait()
                except queue.Empty:
                    return
                began = time.monotonic()
                row = key | _measured(measure, case, context)
                out.add({**row, "seconds": row.get("seconds", round(time.monotonic() - began, 1))})
                print(
                    f"{', '.join(map(str, key.values()))}: {row.get('outcome', '')} {row.get('reason', '')}", flush=True
                )

    if left:
        with ThreadPoolExecutor(len(contexts)) as pool:
            list(pool.map(work, contexts[: len(left)]))
    return out.read()


def _comparable(row: Row, key: Row) -> Any:
    return {name: row.get(name) for name in key}.items()


def _measured(measure: Callable[[Case, Context], Row], case: Case, context: Context) -> Row:
    try:
        return measure(case, context)
    except KernelAssistantError as error:
        return {"outcome": "failed", "reason": f"{error.cause}", "detail": error.detail}
    except Exception as error:  # noqa: BLE001 - one bad case is a row, with its traceback
        reason = f"{type(error).__name__}: {error}"
        return {"outcome": "failed", "reason": reason, "detail": traceback.format_exc()}


class IsolatedProcess:
    """A process that stays from call to call; one that dies, or does not answer for `seconds`, is replaced. What it has
    started ends with it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        if self._pool is not None:
            for pid, process in self._pool._processes.items():
                # It has no group yet while it starts.
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                process.kill()
            self._pool.shutdown()
            self._pool = None

    def begin(self, function: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> None:
        """Starts the function and does not wait for it; the next call runs after it. What it raises is only printed."""
        self._started().submit(_answer, function, *args, **kwargs)

    def call(self, function: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """The function's result. Raises RuntimeError if the process dies or is silent, or if the function raises; then
        the process prints the traceback."""
        try:
            return (
                self._started()
                .submit(_answer, function, *args, **kwargs)
                .result(min(self._seconds, threading.TIMEOUT_MAX))
            )
        except TimeoutError as error:
            self._end()
            raise RuntimeError(f"no answer within {self._seconds:.0f} s") from error
        except BrokenProcessPool as error:
            self._end()
            raise RuntimeError("the process died") from error

    def _started(self) -> ProcessPoolExecutor:
        self._pool = self._pool or ProcessPoolExecutor(1, get_context("spawn"), os.setpgrp)
        return self._pool


def _answer(function: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
    try:
        return function(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - not every exception can be pickled, and one that cannot ends the pool
        traceback.print_exc()
        raise RuntimeError(f"{type(error).__name__}: {error}") from None


def markdown(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> list[str]:
    """The lines of a table."""
    return [_line(columns), "|" + "---|" * len(columns), *map(_line, rows)]


def _line(cells: Iterable[object]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "/").replace("\n", " ") for cell in cells) + " |"


def shown(value: float | None, form: str = ".2f") -> str:
    """A number in a cell, empty where it was not measured."""
    return "" if value is None else format(value, form)


def interval(ends: Sequence[float] | None, form: str = ".2f") -> str:
    return f"{ends[0]:{form}} – {ends[1]:{form}}" if ends else ""
