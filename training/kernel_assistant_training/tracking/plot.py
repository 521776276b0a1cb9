"""`python -m kernel_assistant_training plot RUN [RUN …]`: a run's figures as PNG and SVG; docs/training_metrics.md."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernel_assistant.errors import MissingError, UsageError
from kernel_assistant_training.options.data import PlotArguments

try:
    from kernel_assistant_training.tracking.curves import read_evaluated, read_stages, together
    from kernel_assistant_training.tracking.draw import overview, page
except ModuleNotFoundError as error:
    raise MissingError(f"{error.name} is not installed", "pip install 'kernel-assistant[train]'") from error

PLOTS = "plots"
#: The name of a stage's folder in that of a pipeline.
NUMBERED = re.compile(r"\d\d-.+")
_NO_FIGURES = "name the folder of a run: it has metrics.jsonl, or stages that have"


def main(options: PlotArguments) -> None:
    """Writes the plots and prints their paths."""
    if len(options.runs) == 1:
        paths = write_plots(options.runs[0])
    elif options.out is None:
        raise UsageError("several runs are drawn together and have no folder in common", "name one: --out FOLDER")
    else:
        paths = write_seeds(options.runs, options.out)
    sys.stdout.write("".join(f"{path}\n" for path in paths))


def write_plots(run: Path) -> list[Path]:
    """Draws pages of a stage's folder, or of all stages of a pipeline's and an overview, into `run`/plots as PNG and
    SVG, and overwrites older ones. Returns the files. Raises UsageError if there are no figures, StoreError."""
    if not run.is_dir():
        raise UsageError(f"{run} is no folder", _NO_FIGURES)
    folders = sorted(path for path in run.iterdir() if path.is_dir() and NUMBERED.fullmatch(path.name))
    paths = [path for folder in folders or [run] for path in _pages(folder, run / PLOTS)]
    parts = {folder.name.partition("-")[2]: stages for folder in folders if (stages := read_stages(folder))}
    paths = overview(parts, run.resolve().name, run / PLOTS / "overview") + paths
    if not paths:
        raise UsageError(f"{run} has no figures", _NO_FIGURES)
    return paths


def write_seeds(runs: Sequence[Path], out: Path) -> list[Path]:
    """Draws the mean and range of several runs into `out`, one page for each stage that all runs have. Returns the
    files. Raises the same errors."""
    note = f"\nmean of {len(runs)} runs; the band is from the lowest to the highest"
    first, *others = [{one.name: one for one in read_stages(run)} for run in runs]
    paths: list[Path] = []
    for name in (name for name in first if all(name in stages for stages in others)):
        stage = together([stages[name] for stages in (first, *others)])
        paths += page(stage, "stage", name + note, "step", out / name)
    evaluated = [one for one in map(read_evaluated, runs) if one is not None]
    if len(evaluated) == len(runs):
        paths += page(together(evaluated), "evaluations", "Held-out tasks" + note, "checkpoint", out / "evaluations")
    if not paths:
        raise UsageError("the runs have no figures in common", _NO_FIGURES)
    return paths


def _pages(folder: Path, out: Path) -> Iterator[Path]:
    number, _, name = folder.name.partition("-") if NUMBERED.fullmatch(folder.name) else ("", "", "")
    prefix = f"{number}-{name}-" if number else ""
    # The stage `eval` is drawn over checkpoints.
    for stage in (one for one in read_stages(folder) if one.name != "eval"):
        own = stage.name.replace("_", "-") == name
        yield from page(stage, "stage", stage.name, "step", out / (folder.name if own else prefix + stage.name))
    evaluated = read_evaluated(folder)
    if evaluated is not None:
        yield from page(evaluated, "evaluations", "Held-out tasks", "checkpoint", out / f"{prefix}evaluations")
