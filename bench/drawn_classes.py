"""Classes of transformers, timm and diffusers that a seed draws, and what `scan` and `optimize` make of them.

    python -m bench.drawn_classes draw --seed 1 --out drawn.json
    python -m bench.drawn_classes run drawn.json --target cuda --jobs 4 --out rows.json

`draw` takes a class at random out of each of the first models that run on the CPU (`library_models.py`). `run` scans
each model and optimizes the configuration of its class that took most time, with the command line. A row is written as
soon as it is there.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click

from bench.library_models import build, names
from bench.machine import describe
from bench.modules_table import Row, command, flags, over_the_better, page, rows_of, steps, told
from kernel_assistant.targets.detect import detect

PROGRAM = Path(__file__).with_name("library_models.py")
#: Classes of each library.
DRAWN = {"transformers": 18, "timm": 14, "diffusers": 8}
#: Seconds after which a model is not drawn.
DRAW_SECONDS = 60


@click.group()
def main() -> None:
    """Classes that a seed draws."""


@main.command()
@click.option("--seed", required=True, type=int)
@click.option("--out", required=True, type=click.Path(dir_okay=False, path_type=Path))
def draw(seed: int, out: Path) -> None:
    """Draw the classes."""
    drawn: list[dict[str, str]] = []
    passed: list[str] = []
    for library, wanted in DRAWN.items():
        drawing = random.Random(f"{seed} {library}")
        taken = 0
        for name in names(library, drawing):
            if taken == wanted:
                break
            left = sorted(set(_called(name)) - {one["class"] for one in drawn})
            if left:
                drawn.append({"model": name, "class": drawing.choice(left)})
                taken += 1
            else:
                passed.append(name)
            click.echo(f"{name}: {drawn[-1]['class'] if left else 'passed'}")
            out.write_text(json.dumps({"seed": seed, "classes": drawn, "passed": passed}, indent=1) + "\n")


def _called(name: str) -> list[str]:
    """Names of the library's classes that a forward pass of the model calls, without the model itself. None of a model
    that does not run in a minute."""
    argv = (sys.executable, "-m", "bench.drawn_classes", "called", name)
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=DRAW_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return []
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else []


@main.command(hidden=True)
@click.argument("name")
def called(name: str) -> None:
    """Print the classes as JSON."""
    import torch

    model, arguments = build(name)
    found = set()

    def note(module: torch.nn.Module, _inputs: Any, _output: Any) -> None:
        kind = type(module)
        own = kind.__module__.partition(".")[0] == name.partition(":")[0]
        if own and module is not model and not isinstance(module, torch.nn.Sequential):
            found.add(kind.__name__)

    torch.nn.modules.module.register_module_forward_hook(note)
    with torch.no_grad():
        model(**arguments)
    click.echo(json.dumps(sorted(found)))


@main.command()
@click.argument("drawn", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--target", type=click.Choice(["cpu", "cuda"]), default="cpu")
@click.option("--budget", default=10.0, help="seconds for each class")
@click.option("--jobs", default=1, help="classes at a time, each in a session host of its own")
@click.option("--only", default="", help="names of classes, with commas")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True)
def run(drawn: Path, target: str, budget: float, jobs: int, only: str, out: Path) -> None:
    """Scan and optimize each class."""
    classes = [one for one in json.loads(drawn.read_text())["classes"] if not only or one["class"] in only.split(",")]
    asked = {"machine": describe(detect(target)), "libraries": _versions(), "budget": budget, "jobs": jobs}

    def row(one: dict[str, str], environment: dict[str, str]) -> Row:
        return row_of(one, target, budget, environment)

    rows: list[Row] = []
    for found in rows_of(classes, row, target, budget, jobs):
        rows.append(found)
        rows.sort(key=lambda row: row["module"])
        out.write_text(json.dumps({**asked, "rows": rows}, indent=1))
    click.echo(page(rows))
    known = [better for row in rows if (better := over_the_better(row)) is not None]
    click.echo(f"{len(known)} of {len(rows)} measured; {sum(one >= 0.9 for one in known)} at 0.9 or more")


def row_of(one: dict[str, str], target: str, budget: float, environment: dict[str, str]) -> Row:
    """The row of a class: its model's scan, and a job for it."""
    began = time.monotonic()
    row: Row = {"model": one["model"], "module": f"{one['model']} {one['class']}"}
    program = (sys.executable, str(PROGRAM), one["model"], target)
    scanned = command(("scan", "--json", "--top", "500", "--keep", "500", "--", *program), environment, 0)
    row["scan_seconds"] = round(time.monotonic() - began, 1)
    report = _document(scanned)
    if report is None:
        return row | {"outcome": "not scanned", "why": _words(scanned), "seconds": row["scan_seconds"]}
    row["exit_of_program"] = report.get("exit_code")
    row["share"] = next((seen for seen in report["classes"] if seen["name"] == one["class"]), {}).get("share_seconds")
    began = time.monotonic()
    chosen = f"last:{one['class']}#1"
    done = command(("optimize", "--scan", chosen, *flags(target, budget)), environment, budget)
    row["seconds"] = round(time.monotonic() - began, 1)
    document = _document(done)
    if document is None:
        return row | {"outcome": "hangs" if done is None else f"exit {done.returncode}", "why": _words(done)}
    return row | {"exit": done.returncode if done else None, "steps": steps(environment)} | told(document)


def _document(done: subprocess.CompletedProcess[str] | None) -> dict[str, Any] | None:
    """The last line of what a command printed, if that is JSON."""
    try:
        found = json.loads(done.stdout.strip()) if done else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _words(done: subprocess.CompletedProcess[str] | None) -> str:
    return "" if done is None else " ".join(done.stderr.split())[-400:]


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("torch", "transformers", "timm", "diffusers")}


if __name__ == "__main__":
    main()
