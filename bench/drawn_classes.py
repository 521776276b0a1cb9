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
import sys
import time
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from bench.harness import IsolatedProcess, Row, RowFile, measure_cases
from bench.jobs import SessionHost, over_the_better, page, session_host
from bench.library_models import build, names
from bench.machine import describe
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
    with IsolatedProcess(DRAW_SECONDS) as process:
        for library, wanted in DRAWN.items():
            drawing, most = random.Random(f"{seed} {library}"), len(drawn) + wanted
            for name in names(library, drawing):
                if len(drawn) == most:
                    break
                called: list[str] = []
                with suppress(Exception):
                    called = process.call(_called, name)
                if left := sorted(set(called) - {one["class"] for one in drawn}):
                    drawn.append({"model": name, "class": drawing.choice(left)})
                else:
                    passed.append(name)
                click.echo(f"{name}: {drawn[-1]['class'] if left else 'passed'}")
                out.write_text(json.dumps({"seed": seed, "classes": drawn, "passed": passed}, indent=1) + "\n")


def _called(name: str) -> list[str]:
    """Names of the library's classes that a forward pass of the model calls, without the model itself."""
    import torch

    model, arguments = build(name)
    found = set()

    def note(module: torch.nn.Module, _inputs: Any, _output: Any) -> None:
        kind = type(module)
        own = kind.__module__.partition(".")[0] == name.partition(":")[0]
        if own and module is not model and not isinstance(module, torch.nn.Sequential):
            found.add(kind.__name__)

    handle = torch.nn.modules.module.register_module_forward_hook(note)
    try:
        with torch.no_grad():
            model(**arguments)
    finally:
        handle.remove()
    return sorted(found)


@main.command()
@click.argument("drawn", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--target", type=click.Choice(["cpu", "cuda"]), default="cpu")
@click.option("--budget", default=10.0, help="seconds for each class")
@click.option("--jobs", default=1, help="classes at a time, each in a session host of its own")
@click.option("--modes", is_flag=True, help="torch.compile's modes beside each class; in up to a third of the budget")
@click.option("--only", default="", help="names of classes, with commas")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True)
def run(drawn: Path, target: str, budget: float, jobs: int, modes: bool, only: str, out: Path) -> None:
    """Scan and optimize each class."""
    classes = [one for one in json.loads(drawn.read_text())["classes"] if not only or one["class"] in only.split(",")]
    file = RowFile(out.with_suffix(".jsonl"))
    libraries = {name: version(name) for name in ("torch", *DRAWN) if find_spec(name)}
    file.describe({"machine": describe(detect(target)), "libraries": libraries, "budget": budget, "jobs": jobs})
    cases = [({"model": one["model"], "module": f"{one['model']} {one['class']}"}, one) for one in classes]
    rows = measure_cases(cases, _row, file, [session_host(target, budget, modes=modes) for _ in range(jobs)])
    click.echo(page(rows))
    known = [better for row in rows if (better := over_the_better(row)) is not None]
    click.echo(f"{len(known)} of {len(rows)} measured; {sum(one >= 0.9 for one in known)} at 0.9 or more")
    over = [found for row in rows if (found := row.get("over_best_mode"))]
    faster = sum(found["speedup"] > 1.0 for found in over)
    clearly = sum(found["measurable"] for found in over)
    click.echo(f"{len(over)} beside the modes of torch.compile; faster than all of them {faster}, measurably {clearly}")


def _row(one: dict[str, str], host: SessionHost) -> Row:
    """The row of a class: its model's scan, and a job for it."""
    began = time.monotonic()
    program = (sys.executable, str(PROGRAM), one["model"], host.target)
    report = json.loads(host.output("scan", "--json", "--top", "500", "--keep", "500", "--", *program))
    share = next((seen["share_seconds"] for seen in report["classes"] if seen["name"] == one["class"]), None)
    scanned = {"scan_seconds": round(time.monotonic() - began, 1), "share": share}
    return {**scanned, **host.job("--scan", f"last:{one['class']}#1")}


if __name__ == "__main__":
    main()
