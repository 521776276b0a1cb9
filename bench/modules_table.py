"""What `optimize` makes of each module of a folder: `python -m bench.modules_table FOLDER... --out rows.json`.

Runs the command line on the class `Model` of each file, several at a time, and writes a row for each: outcome, gains
over torch.compile and eager with 99.9% intervals, seconds, and in a job without a result what stood in the way.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import click

from bench.machine import describe
from kernel_assistant.targets.detect import detect

#: Seconds behind the budget after which a job counts as hanging.
HANGING = 180.0
#: The module of the first job of each session host.
FIRST = Path(__file__).resolve().parent.parent / "examples" / "gated_rms_norm.py"
COLUMNS = ("module", "outcome", "× compile", "× eager", "over the better", "seconds", "what stood in the way")


Row = dict[str, Any]
One = TypeVar("One")


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--target", type=click.Choice(["cpu", "cuda"]), default="cpu")
@click.option("--budget", default=10.0, help="seconds for each module")
@click.option("--jobs", default=1, help="modules at a time, each in a session host of its own")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True)
def main(folders: tuple[Path, ...], target: str, budget: float, jobs: int, out: Path) -> None:
    """Prints the table and writes the rows."""
    files = [file for folder in folders for file in sorted(folder.glob("[0-9]*.py"))]
    asked = {"machine": describe(detect(target)), "budget": budget, "jobs": jobs}

    def row(file: Path, environment: dict[str, str]) -> Row:
        return row_of(file, target, budget, environment)

    rows: list[Row] = []
    for one in rows_of(files, row, target, budget, jobs):
        rows.append(one)
        rows.sort(key=lambda one: (one["folder"], one["module"]))
        out.write_text(json.dumps({**asked, "rows": rows}, indent=1))
    click.echo(page(rows))


def rows_of(
    items: Iterable[One], row_of: Callable[[One, dict[str, str]], Row], target: str, budget: float, jobs: int
) -> Iterator[Row]:
    """A row for each item as soon as it is there. `row_of` gets the item and the environment of commands: each of
    `jobs` threads has a session host of its own, which keeps its worker warm as a user's does. A first job that does
    not count starts both.
    """
    waiting, found = queue.SimpleQueue[One](), queue.SimpleQueue[Row | None]()
    for item in items:
        waiting.put(item)

    def work() -> None:
        with tempfile.TemporaryDirectory() as home:
            environment = {**os.environ, "XDG_STATE_HOME": home, "XDG_RUNTIME_DIR": ""}
            try:
                command(("optimize", f"{FIRST}:GatedRMSNorm", *flags(target, budget)), environment, budget)
                with contextlib.suppress(queue.Empty):
                    while True:
                        found.put(row_of(waiting.get_nowait(), environment))
            finally:
                command(("host", "stop"), environment, budget)
                found.put(None)

    with ThreadPoolExecutor(jobs) as pool:
        working = [pool.submit(work) for _ in range(jobs)]
        for _ in working:
            yield from iter(found.get, None)
        for one in working:
            one.result()


def row_of(file: Path, target: str, budget: float, environment: dict[str, str]) -> Row:
    """The row of one file."""
    began = time.monotonic()
    done = command(("optimize", f"{file}:Model", *flags(target, budget)), environment, budget)
    row = {"folder": file.parent.name, "module": file.stem, "seconds": round(time.monotonic() - began, 1)}
    if done is None:
        return row | {"outcome": "hangs"}
    try:
        return row | {"exit": done.returncode, "steps": steps(environment)} | told(json.loads(done.stdout))
    except ValueError:
        return row | {"outcome": f"exit {done.returncode}", "why": " ".join(done.stderr.split())[-300:]}


def steps(environment: dict[str, str]) -> list[tuple[float, str]]:
    """What the last job told of its progress, each with the seconds since it started."""
    jobs = Path(environment["XDG_STATE_HOME"]).glob("kernel-assistant/jobs/*/events.jsonl")
    last = max(jobs, key=lambda path: int(path.parent.name), default=None)
    if last is None:
        return []
    events = [json.loads(line) for line in last.read_text().splitlines()]
    told = [(event["time"] - events[0]["time"], event.get("message", "")) for event in events]
    return [(round(seconds, 2), message) for seconds, message in told if message]


def flags(target: str, budget: float) -> tuple[str, ...]:
    """What `optimize` is asked with."""
    return ("--policy", "generator", "--budget", f"{budget:g}s", "--target", target, "--no-free-wins", "--json")


def command(
    words: tuple[str, ...], environment: dict[str, str], budget: float
) -> subprocess.CompletedProcess[str] | None:
    """Runs `kernel-assistant`; None if it hangs behind `budget` seconds."""
    argv = (sys.executable, "-m", "kernel_assistant", *words)
    try:
        return subprocess.run(
            argv, env=environment, capture_output=True, text=True, timeout=budget + HANGING, check=False
        )
    except subprocess.TimeoutExpired:
        return None


def told(document: dict[str, Any]) -> Row:
    """What a row keeps of the document that `--json` prints."""
    best = document.get("best") or {}
    figures = ("candidate_ms", "eager_ms", "compile_ms", "speedup_vs_compile", "speedup_vs_compile_ci")
    kept = {name: best.get(name) for name in (*figures, "speedup_vs_eager", "speedup_vs_eager_ci", "residual")}
    return {**kept, **{name: document.get(name) for name in ("outcome", "offer", "why", "evaluations", "obstacles")}}


def over_the_better(row: Row) -> float | None:
    """Speed-up over the faster of eager and torch.compile."""
    known = [row[name] for name in ("speedup_vs_compile", "speedup_vs_eager") if row.get(name)]
    return min(known, default=None)


def page(rows: list[Row]) -> str:
    """The table as Markdown."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for row in rows:
        reason = row.get("why") or "; ".join(map(_obstacle, row.get("obstacles") or ()))
        cells = (row["module"], row["outcome"], _figure(row, "compile"), _figure(row, "eager"))
        better = over_the_better(row)
        cells += ("" if better is None else f"{better:.2f}", f"{row['seconds']:.0f}", reason[:160])
        lines.append("| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |")
    return "\n".join(lines)


def _figure(row: Row, over: str) -> str:
    speedup, interval = row.get(f"speedup_vs_{over}"), row.get(f"speedup_vs_{over}_ci")
    if not speedup:
        return ""
    return f"{speedup:.2f}" + (f" ({interval[0]:.2f}–{interval[1]:.2f})" if interval else "")


def _obstacle(obstacle: dict[str, Any]) -> str:
    return " ".join(str(obstacle[name]) for name in ("outcome", "message") if obstacle.get(name))


if __name__ == "__main__":
    main()
