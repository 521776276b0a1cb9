"""`python -m kernel_assistant_training.episodes`: play lessons in the real environment and keep the conversations."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import click

from kernel_assistant.config import resolve
from kernel_assistant_training.endings import ended, invoke
from kernel_assistant_training.episodes.lesson import FAULTS
from kernel_assistant_training.episodes.options import Options
from kernel_assistant_training.episodes.run import run
from kernel_assistant_training.nominal import CLOCKS, unbounded
from kernel_assistant_training.synth.narrow import Narrow
from kernel_assistant_training.synth.sampler import LEVELS


@click.command("episodes")
@click.option("--target", type=click.Choice(["cpu", "cuda"]), required=True)
@click.option("--seconds", type=float, required=True, help="When no further lesson begins.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder; is continued.")
@click.option("--tasks", type=int, default=1 << 62, help="Most of a process.")
@click.option("--lessons", type=int, default=8, show_default=True, help="Most of a task.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the stream of tasks.")
@click.option("--processes", type=int, default=1, show_default=True, help="Players that share the device.")
@click.option(
    "--cores", type=int, default=0, help="CPU target: cores that each process alone measures on. 0: all share."
)
@click.option("--builders", type=int, default=1, show_default=True, help="Compilers at a time, for each player.")
@click.option("--faults", type=float, default=FAULTS, show_default=True, help="Share of lessons with a mistake.")
@click.option("--estimated-compile", type=float, default=0.5, show_default=True, help="Share with such a figure.")
@click.option("--in-full", type=float, default=0.15, show_default=True, help="Share verified at other sizes too.")
@click.option("--only", default="", metavar="NAME,...", help="Tasks of these steps or families alone.")
@click.option("--level", type=int, default=LEVELS[-1], show_default=True, help="Most steps of a task.")
@click.option("--clock", type=click.Choice(CLOCKS), default=CLOCKS[0], help="nominal: times that nobody measured.")
@click.option("--python", default=sys.executable, help="Interpreter with torch.")
def episodes(
    target: str,
    seconds: float,
    out: Path,
    tasks: int,
    lessons: int,
    seed: int,
    processes: int,
    cores: int,
    builders: int,
    faults: float,
    estimated_compile: float,
    in_full: float,
    only: str,
    level: int,
    clock: str,
    python: str,
) -> None:
    """Real conversations for training: docs/episodes.md."""
    options = Options(
        target=target,
        out=out,
        seed=seed,
        until=time.monotonic() + seconds,
        python=python,
        cache=unbounded(target, out) if clock == "nominal" else resolve()[0].cache_dir,
        parts=processes,
        builders=builders,
        faults=faults,
        estimated_compile=estimated_compile,
        in_full=in_full,
        lessons=lessons,
        tasks=tasks,
        narrow=Narrow.of(only, level),
        clock=clock,
    )
    click.echo(json.dumps(run(options, cores), indent=2))


def main(words: list[str]) -> None:
    invoke(episodes, words)


if __name__ == "__main__":
    raise SystemExit(ended("episodes", lambda: main(sys.argv[1:])))
