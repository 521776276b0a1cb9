"""What `optimize` makes of each module of a folder: `python -m bench.modules_table FOLDER... --out rows.jsonl`.

Runs the command line on the class `Model` of each file, several at a time.
"""

from __future__ import annotations

from pathlib import Path

import click

from bench.harness import RowFile, measure_cases
from bench.jobs import SessionHost, page, session_host
from bench.machine import describe
from kernel_assistant.targets.detect import detect


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--target", type=click.Choice(["cpu", "cuda"]), default="cpu")
@click.option("--budget", default=10.0, help="seconds for each module")
@click.option("--jobs", default=1, help="modules at a time, each in a session host of its own")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True)
def main(folders: tuple[Path, ...], target: str, budget: float, jobs: int, out: Path) -> None:
    """Writes the rows and prints the table."""
    rows = RowFile(out.with_suffix(".jsonl"))
    rows.describe({"machine": describe(detect(target)), "budget": budget, "jobs": jobs})
    files = [file for folder in folders for file in sorted(folder.glob("[0-9]*.py"))]
    cases = [({"folder": file.resolve().parent.name, "module": file.stem}, file) for file in files]
    hosts = [session_host(target, budget) for _ in range(jobs)]
    click.echo(page(measure_cases(cases, _row, rows, hosts)))


def _row(file: Path, host: SessionHost) -> dict[str, object]:
    return host.job(f"{file}:Model")


if __name__ == "__main__":
    main()
