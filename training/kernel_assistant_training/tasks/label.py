"""`python -m kernel_assistant_training label`: the generator's candidates for tasks, judged; docs/tasks.md."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import click

from kernel_assistant.config import resolve
from kernel_assistant.errors import EXIT_INTERNAL, InternalError, KernelAssistantError, UsageError
from kernel_assistant.session.training_run import Wish, ask
from kernel_assistant_training.endings import invoke
from kernel_assistant_training.interrupts import Interrupted, belong_to_parent
from kernel_assistant_training.ppo.run_folder import RunFolder
from kernel_assistant_training.run_control import RunControl
from kernel_assistant_training.tasks.label_rows import read_labels
from kernel_assistant_training.tasks.labeller import Labeller, LabelOptions
from kernel_assistant_training.tasks.shards import arrow, read_rows, write_shards

LOOK_SECONDS = 2.0
STAGES = ("open_seconds", "build_seconds", "verify_seconds", "profile_seconds")


@click.command()
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder; is continued.")
@click.option("--tasks", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Shards; default: --out.")
@click.option("--target", type=click.Choice(["cpu", "cuda"]), required=True)
@click.option("--candidates", type=int, default=16, show_default=True, help="Most of a task.")
@click.option("--tasks-most", type=int, default=1 << 62, help="Of the shards, the first so many.")
@click.option("--rows-most", type=int, default=1 << 62, help="With so many, those of before too, no task begins.")
@click.option("--seconds", type=float, default=float("inf"), help="After which no task begins.")
@click.option("--processes", type=int, default=1, show_default=True, help="Judges; GPUs in turn.")
@click.option("--builders", type=int, default=1, show_default=True, help="Compilers at a time, for each.")
@click.option("--sandbox", default="auto", show_default=True)
@click.option("--python", default=sys.executable, help="Interpreter with torch.")
def label(
    out: Path,
    tasks: Path | None,
    target: str,
    candidates: int,
    tasks_most: int,
    rows_most: int,
    seconds: float,
    processes: int,
    builders: int,
    sandbox: str,
    python: str,
) -> None:
    """Judge candidates; rows lie in the folder as Parquet afterwards."""
    options = LabelOptions(
        out=out,
        tasks=tasks or out,
        target=target,
        python=python,
        cache=resolve()[0].cache_dir,
        candidates=candidates,
        tasks_most=tasks_most,
        rows_most=rows_most,
        parts=processes,
        builders=builders,
        sandbox=sandbox,
        seconds=seconds,
    )
    click.echo(json.dumps(run(options), indent=2))


def main(words: list[str]) -> None:
    invoke(label, words)


def run(options: LabelOptions) -> dict[str, Any]:
    """All parts side by side, then the shards; the summary."""
    arrow()
    if not read_rows(options.tasks):
        raise UsageError(
            f"{options.tasks} has no shards of tasks", "make them: python -m kernel_assistant_training synth"
        )
    asked = {"stage": "label", "target": options.target, "candidates": options.candidates}
    RunFolder(options.out / "labels", asked, free=("parts",))
    folder = options.out / "labels"
    before, began = Count().of(folder), time.monotonic()
    with RunControl(folder, "label") as control:
        failed, rate = _play(options, control, before) if before < options.rows_most else ([], 0.0)
        rows = [one.row() for one in read_labels(folder)]
        write_shards(folder, "labels", rows, label_schema())
        if failed and not control.interrupted:
            cause = f"{len(failed)} of {options.parts} processes ended early (exit codes {failed})"
            raise InternalError(f"{cause}; {len(rows)} rows are kept", "start it again: it goes on with the tasks left")
    minutes = (time.monotonic() - began) / 60
    judged = sum(bool(row["candidate"]) for row in rows)
    return {
        "candidates": judged,
        "tasks": len({row["task"] for row in rows if row["candidate"]}),
        "rows": len(rows),
        "rows_per_minute": round((len(rows) - before) / minutes, 1),
        "rows_per_minute_once_started": round(rate, 1),
        "median": {name: median(found) for name in ("noise", *STAGES) if (found := _known(rows, name))},
        "outcomes": dict(Counter(row["outcome"] for row in rows).most_common()),
    }


def label_schema() -> Any:
    """Of a row: times in milliseconds (null where there are none), noise relative, memory in bytes."""
    pa = arrow()
    texts = ("task", "target", "device", "candidate", "schedule", "source", "outcome", "stage", "message", "launches")
    fields = {name: pa.string() for name in texts} | {name: pa.float64() for name in ("candidate_ms", "eager_ms")}
    fields |= {name: pa.float64() for name in ("noise", "floor_ms", "seconds", *STAGES)}
    numbers = ("samples", "registers", "shared_bytes", "spill_bytes", "number")
    return pa.schema(fields | {name: pa.int64() for name in numbers})


def _known(rows: list[dict[str, Any]], name: str) -> list[float]:
    return [row[name] for row in rows if row[name] is not None]


def _play(options: LabelOptions, control: RunControl, before: int) -> tuple[list[int], float]:
    """Until all have ended, or somebody stops it; exit codes of those that failed, and the rows a minute from the
    first new ones on."""
    context = get_context("spawn")
    parts = [context.Process(target=_part, args=(options, part)) for part in range(options.parts)]
    folder, began, reported, count = options.out / "labels", time.monotonic(), before, Count()
    first: tuple[float, int] | None = None
    latest = began
    try:
        for process in parts:
            process.start()
        while any(process.is_alive() for process in parts):
            for process in parts:
                process.join(LOOK_SECONDS / len(parts))
            rows = count.of(folder)
            if rows != reported:
                latest = time.monotonic()
                first = first or (latest, rows)
                rate = 60 * (rows - before) / (time.monotonic() - began)
                control.report(rows, {"rows": rows, "rows_per_min": round(rate, 1)})
                reported = rows
            # The parts look at the same file and end behind the task that they are at.
            if not control.goes_on(rows) or rows >= options.rows_most:
                ask(folder, Wish.stop)
    finally:
        for process in parts:
            if process.is_alive():
                process.terminate()
    rate = 0.0 if first is None or latest == first[0] else 60 * (reported - first[1]) / (latest - first[0])
    return [process.exitcode for process in parts if process.exitcode], rate


def _part(options: LabelOptions, part: int) -> None:
    """A process of its own. What its owner is to be told, it says itself."""
    belong_to_parent()
    try:
        with Labeller(options, part) as labeller:
            labeller.run()
    except (KernelAssistantError, OSError) as error:
        sys.stderr.write(f"part {part}: {error}\n")
        raise SystemExit(EXIT_INTERNAL) from error
    except Interrupted as error:
        raise SystemExit(error.exit_code) from error


class Count:
    """Of whole lines in files that are appended to: what was counted is not read again."""

    def __init__(self) -> None:
        self._read = Counter[Path]()
        self._lines = 0

    def of(self, folder: Path) -> int:
        for path in folder.glob("labels-*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._read[path])
                head, end, _ = file.read().rpartition(b"\n")
            self._read[path] += len(head + end)
            self._lines += (head + end).count(b"\n")
        return self._lines
