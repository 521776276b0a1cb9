"""Classes of transformers, timm and diffusers that a seed draws, and what `scan` and `optimize` make of them.

    python -m bench.drawn_classes draw --seed 1 --out drawn.json
    python -m bench.drawn_classes run drawn.json --target cuda --jobs 4 --out rows.json

`draw` takes a class at random out of each of the first models that run on the CPU (`library_models.py`). `run` scans
all models, several at a time, and then optimizes the configuration of each class that took most time, with the command
line. A row is written as soon as it is there.
"""

from __future__ import annotations

import json
import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from bench.harness import IsolatedProcess, Row, RowFile, measure_cases
from bench.jobs import SessionHost, host_environment, over_the_better, page, session_host
from bench.library_models import build, names
from bench.machine import describe
from kernel_assistant.session.scanning.scan import KEPT_SCANS
from kernel_assistant.targets.detect import detect

PROGRAM = Path(__file__).with_name("library_models.py")
#: Classes of each library.
DRAWN = {"transformers": 18, "timm": 14, "diffusers": 8}
#: Scans at a time for each job at a time.
SCANS = 3
#: Of this process, before its threads share them.
CORES = sorted(os.sched_getaffinity(0))
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
    folder = out.with_suffix("")
    file = RowFile(out.with_suffix(".jsonl"))
    libraries = {name: version(name) for name in ("torch", *DRAWN) if find_spec(name)}
    file.describe({"machine": describe(detect(target)), "libraries": libraries, "budget": budget, "jobs": jobs})
    jobs = min(jobs, len(classes), len(CORES))
    if not classes or len(classes) > jobs * KEPT_SCANS:
        raise click.UsageError(f"{len(classes)} classes for {jobs} jobs: a job at a time takes 1 to {KEPT_SCANS}")
    hosts = [_Share(folder / str(number), number, jobs, target, budget, modes) for number in range(jobs)]
    with ThreadPoolExecutor(jobs) as threads:
        scans = list(threads.map(lambda host: host.scan(classes), hosts))
        list(threads.map(lambda host, rows: host.optimize(rows, file), hosts, scans))
    rows = file.read()
    click.echo(page(rows))
    known = [better for row in rows if (better := over_the_better(row)) is not None]
    click.echo(f"{len(known)} of {len(rows)} measured; {sum(one >= 0.9 for one in known)} at 0.9 or more")
    over = [found for row in rows if (found := row.get("over_best_mode"))]
    faster = sum(found["speedup"] > 1.0 for found in over)
    clearly = sum(found["measurable"] for found in over)
    click.echo(f"{len(over)} beside the modes of torch.compile; faster than all of them {faster}, measurably {clearly}")


@dataclass(frozen=True)
class _Share:
    """A session host with every `of`th class and core, from `number` on; the calling thread and what it starts stay on
    these cores."""

    home: Path
    number: int
    of: int
    target: str
    budget: float
    modes: bool

    def scan(self, classes: list[dict[str, str]]) -> list[Row]:
        """The scans of this share's classes."""
        os.sched_setaffinity(0, CORES[self.number :: self.of])
        self.home.mkdir(parents=True, exist_ok=True)
        host = SessionHost(self.home, host_environment(self.home), self.target, self.budget, self.modes)
        mine = classes[self.number :: self.of]
        cases = [({"model": one["model"], "module": f"{one['model']} {one['class']}"}, one) for one in mine]
        rows = measure_cases(cases, _scan, RowFile(self.home / "scans.jsonl"), [nullcontext(host)] * SCANS)
        modules = [key["module"] for key, _ in cases]
        return [row for row in rows if row["module"] in modules]

    def optimize(self, scans: list[Row], out: RowFile) -> None:
        """A job for each scanned class."""
        os.sched_setaffinity(0, CORES[self.number :: self.of])
        cases = [({name: scan[name] for name in ("model", "module")}, scan) for scan in scans]
        measure_cases(cases, _row, out, [session_host(self.target, self.budget, self.home, modes=self.modes)])


def _scan(one: dict[str, str], host: SessionHost) -> Row:
    """The scan of a class's model, and the class's share of its time."""
    program = (sys.executable, str(PROGRAM), one["model"], host.target)
    report = json.loads(host.output("scan", "--json", "--top", "500", "--keep", "500", "--", *program))
    share = next((seen["share_seconds"] for seen in report["classes"] if seen["name"] == one["class"]), None)
    return {"scan": f"{report['id']}:{one['class']}#1", "share": share}


def _row(scan: Row, host: SessionHost) -> Row:
    """A job for a scanned class."""
    if "scan" not in scan:
        raise RuntimeError(f"the scan failed: {scan.get('reason')}")
    return {"share": scan["share"], "scan_seconds": scan["seconds"], **host.job("--scan", scan["scan"])}


if __name__ == "__main__":
    main()
