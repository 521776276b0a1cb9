"""What `optimize` makes of the 24 modules of `modules.toml` (docs/real_modules.md), or of files with a class `Model`:

    python -m bench.modules --target cpu --out rows.jsonl [FILE.py ...]

Runs the command line on each, writes a row as soon as it is there, and prints the table.
"""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent

import click

from bench.harness import RowFile, measure_cases
from bench.jobs import SessionHost, page, session_host
from bench.machine import describe
from kernel_assistant.targets.detect import detect

TEXT = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {layers}

    def forward(self, {takes}):
{forward}


def get_inputs():
    return [{inputs}]
"""


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--target", type=click.Choice(["cpu", "cuda"]), default="cpu")
@click.option("--budget", default=10.0, help="seconds for each module")
@click.option("--jobs", default=1, help="modules at a time, each in a session host of its own")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True)
def main(files: tuple[Path, ...], target: str, budget: float, jobs: int, out: Path) -> None:
    """Writes the rows and prints the table."""
    rows = RowFile(out.with_suffix(".jsonl"))
    rows.describe({"machine": describe(detect(target)), "budget": budget, "jobs": jobs})
    with tempfile.TemporaryDirectory(prefix="ka-modules-") as folder:
        cases = [({"module": file.stem}, file) for file in files or written(Path(folder))]
        click.echo(page(measure_cases(cases, _row, rows, [session_host(target, budget) for _ in range(jobs)])))


def written(folder: Path) -> Iterator[Path]:
    """Writes a file for each module of the table."""
    for name, one in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items():
        text = TEXT.format(**{"layers": "pass", **one, "forward": indent(one["forward"], " " * 8)})
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
        yield folder / f"{name}.py"


def _row(file: Path, host: SessionHost) -> dict[str, object]:
    return host.job(f"{file}:Model")


if __name__ == "__main__":
    main()
