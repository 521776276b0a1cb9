"""All plots of a run, or of several that are seeds of one thing."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from kernel_assistant.errors import MissingError, UsageError

PLOTS = "plots"
#: A stage's folder in that of a pipeline.
NUMBERED = re.compile(r"\d\d-.+")
#: The stage of `train eval`: what it reports is drawn over checkpoints.
EVALUATION = "eval"
_NO_FIGURES = "name the folder of a run: it has metrics.jsonl, or stages that have"


def write_plots(run_folder: Path) -> list[Path]:
    """Pages of a stage's folder, or of all stages of a pipeline's, in `run_folder`/plots as PNG and SVG; what was
    there of the same name is written anew. Raises UsageError where there are no figures, MissingError, StoreError."""
    check_drawing()
    stages = folders(run_folder)
    found = [path for stage in stages for path in _pages(stage, run_folder / PLOTS, stage.name)]
    if stages != [run_folder]:
        found = _overview(run_folder, stages) + found
    if not found:
        raise UsageError(f"{run_folder} has no figures", _NO_FIGURES)
    return found


def write_seeds(runs: Sequence[Path], out: Path) -> list[Path]:
    """Mean and range of several runs of the same stages, a page for each stage that all have, in `out`. The same
    errors."""
    check_drawing()
    from kernel_assistant_training.tracking.curves import read_evaluated, read_stages, together
    from kernel_assistant_training.tracking.draw import page
    from kernel_assistant_training.tracking.panels import EVALUATIONS, PANELS

    note = f"mean of {len(runs)} runs; the band is from the lowest to the highest"
    by_run = [{one.name: one for one in read_stages(run)} for run in runs]
    found: list[Path] = []
    for name in (name for name in by_run[0] if all(name in stages for stages in by_run)):
        stage = together([stages[name] for stages in by_run])
        found += page(stage, PANELS, name, note, "step", out / name)
    evaluated = [one for one in (read_evaluated(run) for run in runs) if one is not None]
    if len(evaluated) == len(runs):
        found += page(together(evaluated), EVALUATIONS, "Held-out tasks", note, "checkpoint", out / "evaluations")
    if not found:
        raise UsageError("the runs have no figures in common", _NO_FIGURES)
    return found


def check_drawing() -> None:
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingError("matplotlib is not installed", "pip install 'kernel-assistant[train]'")


def folders(run: Path) -> list[Path]:
    """The stages of a pipeline's folder, in their order; a stage's own folder is its only one."""
    if not run.is_dir():
        raise UsageError(f"{run} is no folder", _NO_FIGURES)
    return sorted(path for path in run.iterdir() if path.is_dir() and NUMBERED.fullmatch(path.name)) or [run]


def _pages(folder: Path, out: Path, name: str) -> Iterable[Path]:
    from kernel_assistant_training.tracking.curves import read_evaluated, read_stages
    from kernel_assistant_training.tracking.draw import page
    from kernel_assistant_training.tracking.panels import EVALUATIONS, PANELS

    prefix = f"{name}-" if NUMBERED.fullmatch(name) else ""
    for stage in (one for one in read_stages(folder) if one.name != EVALUATION):
        own = stage.name.replace("_", "-") == name.partition("-")[2]
        yield from page(stage, PANELS, stage.name, "", "step", out / (name if own else f"{prefix}{stage.name}"))
    evaluated = read_evaluated(folder)
    if evaluated is not None:
        yield from page(evaluated, EVALUATIONS, "Held-out tasks", "", "checkpoint", out / f"{prefix}evaluations")


def _overview(run: Path, folders: Sequence[Path]) -> list[Path]:
    from kernel_assistant_training.tracking.curves import read_stages
    from kernel_assistant_training.tracking.overview import Part, overview

    parts = [Part(folder.name.partition("-")[2], read_stages(folder)) for folder in folders]
    return overview([one for one in parts if one.stages], run.resolve().name, run / PLOTS / "overview")
