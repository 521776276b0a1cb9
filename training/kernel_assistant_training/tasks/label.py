"""`python -m kernel_assistant_training label`: evaluates the generator's candidates for tasks; docs/tasks.md."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import click

from kernel_assistant.errors import (
    EXIT_INTERNAL,
    InternalError,
    KernelAssistantError,
    StoreError,
    UsageError,
    boundary,
)
from kernel_assistant.session.training_run import TrainingCommand, ask
from kernel_assistant.session.training_stages import appended_lines
from kernel_assistant_training.evaluation.processes import side_by_side
from kernel_assistant_training.options.data import LabelArguments
from kernel_assistant_training.run_control import RunControl
from kernel_assistant_training.run_settings import claim_run
from kernel_assistant_training.synth.answers import DEVICES
from kernel_assistant_training.tasks.drawn import rows_of_tasks
from kernel_assistant_training.tasks.label_rows import read_labels
from kernel_assistant_training.tasks.labeller import Labeller
from kernel_assistant_training.tasks.shards import arrow, read_rows, task_schema, write_shards

LOOK_SECONDS = 2.0
STAGES = ("open_seconds", "build_seconds", "verify_seconds", "profile_seconds")


def main(asked: LabelArguments) -> None:
    """Evaluates the candidates of all tasks and prints the summary as JSON."""
    click.echo(json.dumps(run(asked), indent=2))


def run(asked: LabelArguments) -> dict[str, Any]:
    """Evaluates the candidates in all processes, then writes the shards; returns the summary. Raises UsageError without
    tasks, InternalError if processes failed, and MissingError without pyarrow."""
    arrow()
    _require_tasks(asked)
    folder = asked.out / "labels"
    settings = {"stage": "label", "target": asked.target, "candidates": asked.candidates}
    claim_run(folder, settings, free=("parts",))
    before, began = LineCounter().of(folder), time.monotonic()
    with RunControl(folder, "label") as control:
        failed, rate = _play(asked, control, before) if before < asked.rows_most else ([], 0.0)
        rows = [one.row() for one in read_labels(folder)]
        write_shards(folder, "labels", rows, label_schema())
        if failed and not control.interrupted:
            cause = f"{len(failed)} of {asked.processes} processes ended early (exit codes {failed})"
            raise InternalError(f"{cause}; {len(rows)} rows are kept", "start it again: it goes on with the tasks left")
    minutes = (time.monotonic() - began) / 60
    judged = sum(bool(row["candidate"]) for row in rows)
    return {
        "candidates": judged,
        "tasks": len({row["task"] for row in rows if row["candidate"]}),
        "rows": len(rows),
        "rows_per_minute": round((len(rows) - before) / minutes, 1),
        "rows_per_minute_once_started": round(rate, 1),
        "median": {name: median(values) for name in ("noise", *STAGES) if (values := _known(rows, name))},
        "outcomes": dict(Counter(row["outcome"] for row in rows).most_common()),
    }


def _require_tasks(asked: LabelArguments) -> None:
    """Draws tasks into the folder of results if there are none and some are asked for. Raises UsageError without tasks,
    and if tasks are to be drawn although a folder of shards is named."""
    if asked.drawn and asked.tasks is not None:
        raise UsageError("--drawn draws tasks into --out, and --tasks names others", "leave out one of the two")
    if read_rows(asked.tasks or asked.out):
        return
    if asked.drawn <= 0:
        cause = f"{asked.tasks or asked.out} has no shards of tasks"
        raise UsageError(cause, "use --drawn COUNT, or kernel-assistant train synth")
    with boundary(StoreError, f"{asked.out}: tasks could not be written"):
        asked.out.mkdir(parents=True, exist_ok=True)
    write_shards(asked.out, "tasks", rows_of_tasks(DEVICES[asked.target], asked.drawn, asked.seed), task_schema())


def label_schema() -> Any:
    """Returns the pyarrow schema of a row. Times `*_ms` are in milliseconds (null if unknown), `*_seconds` in seconds;
    noise is relative; memory is in bytes."""
    pa = arrow()
    texts = ("task", "target", "device", "candidate", "schedule", "source", "outcome", "stage", "message", "launches")
    fields = {name: pa.string() for name in texts} | {
        name: pa.float64() for name in ("candidate_ms", "graph_ms", "again_ms", "again_graph_ms", "eager_ms")
    }
    fields |= {name: pa.float64() for name in ("noise", "floor_ms", "seconds", *STAGES)}
    numbers = ("samples", "registers", "shared_bytes", "spill_bytes", "number")
    return pa.schema(fields | {name: pa.int64() for name in numbers})


def _known(rows: list[dict[str, Any]], name: str) -> list[float]:
    return [row[name] for row in rows if row[name] is not None]


def _play(asked: LabelArguments, control: RunControl, before: int) -> tuple[list[int], float]:
    """Runs all processes until they have ended or a stop is requested. Returns the exit codes of processes that failed,
    and the rows per minute after the first new row."""
    folder, began, reported, count = asked.out / "labels", time.monotonic(), before, LineCounter()
    first: tuple[float, int] | None = None
    latest = began

    def report() -> None:
        nonlocal first, latest, reported
        rows = count.of(folder)
        if rows != reported:
            latest = time.monotonic()
            first = first or (latest, rows)
            rate = 60 * (rows - before) / (time.monotonic() - began)
            control.report(rows, {"rows": rows, "rows_per_min": round(rate, 1)})
            reported = rows
        # The parts read the same file and end after their current task.
        if not control.goes_on(rows) or rows >= asked.rows_most:
            ask(folder, TrainingCommand.stop)

    parts = [(asked, part) for part in range(asked.processes)]
    failed = side_by_side(_part, parts, report=report, seconds=LOOK_SECONDS)
    rate = 0.0 if first is None or latest == first[0] else 60 * (reported - first[1]) / (latest - first[0])
    return failed, rate


def _part(asked: LabelArguments, part: int) -> None:
    """Runs process number `part`. Prints errors itself, and ends the process with an exit code."""
    try:
        with Labeller(asked, part) as labeller:
            labeller.run()
    except (KernelAssistantError, OSError) as error:
        sys.stderr.write(f"part {part}: {error}\n")
        raise SystemExit(EXIT_INTERNAL) from error


class LineCounter:
    """Counts the lines of files that grow, without reading a byte twice."""

    def __init__(self) -> None:
        self._read = Counter[Path]()
        self._lines = 0

    def of(self, folder: Path) -> int:
        for path in folder.glob("labels-*.jsonl"):
            _, lines = appended_lines(path, self._read[path])
            self._read[path] += len(lines)
            self._lines += lines.count(b"\n")
        return self._lines
