"""Writes `report.md` of a run: each stage's metrics at its start and at its end, data, times and machine."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kernel_assistant.session.training_run import replace_file
from kernel_assistant.session.training_stages import FIRST, StageProgress, clock
from kernel_assistant.targets.machine import describe
from kernel_assistant_training.pipeline.finish import exported
from kernel_assistant_training.pipeline.inputs import evaluated, figures_of
from kernel_assistant_training.pipeline.kinds import KINDS
from kernel_assistant_training.pipeline.process import StopCause
from kernel_assistant_training.pipeline.run_folder import PipelineFolder
from kernel_assistant_training.tracking.metrics import as_text, numbers, read_metrics

Row = tuple[str, ...]
REPORT = "report.md"
_PACKAGES = ("torch", "transformers", "trl", "accelerate", "peft")
#: Counts: those of the newest line of metrics, and those that are summed over all lines.
_COUNTED = ("tasks", "kept_rate", "kept", "rows")
_SUMMED = ("episodes", "evaluations", "evaluations_repeated", "evaluations_void")
_SPEED = ("faster_eager_rate", "episode_turns", "episode_tokens", "generated_tokens_per_s", "evaluations_per_s")


def write_report(run: PipelineFolder) -> Path:
    """Writes the report of a run and returns its path. Raises StoreError if the file cannot be written."""
    parts = (
        _head(run),
        _table("Stages", ["stage", "state", ":time", ":limit", ":starts", "from", "left"], _stages(run)),
        _table("Figures", ["stage", "figure", ":first", ":last", ":points"], _each(run, _figures)),
        _table("Data", ["stage", "at its end"], _each(run, _data)),
        _evaluations(run),
        "Curves: `tensorboard --logdir .` in this folder, or `kernel-assistant tui`.",
    )
    text = "\n\n".join(part for part in parts if part)
    replace_file(run.path / REPORT, (text + "\n").encode(), durable=True)
    return run.path / REPORT


def _each(run: PipelineFolder, rows: Callable[[list[dict[str, Any]], Path], Iterable[Row]]) -> list[Row]:
    """Returns the table rows that `rows` makes from the metrics and the folder of each stage, with the stage's name as
    first cell."""
    return [
        (stage.name, *row)
        for index, stage in enumerate(run.recipe.stage)
        for row in rows(read_metrics(run.watched(index)), run.folder(index))
    ]


def _table(title: str, head: Sequence[str], rows: Sequence[Row]) -> str:
    """Returns a section with a table, or "" if there are no rows. A colon before a column's name marks a column of
    numbers."""
    rule = "|".join("---:" if name.startswith(":") else "---" for name in head)
    lines = [f"| {' | '.join(row)} |" for row in ([name.removeprefix(":") for name in head], *rows)]
    return "\n".join([f"## {title}", "", lines[0], f"|{rule}|", *lines[1:]]) if rows else ""


def _head(run: PipelineFolder) -> str:
    recipe, model = run.recipe, exported(run)
    facts = {"base": recipe.base, "target": recipe.target, "seed": str(recipe.seed)}
    facts |= describe(recipe.target, _PACKAGES)
    facts |= {"model": _relative(model, run.path) if model else "none yet"}
    rows = [f"| {name} | {value} |" for name, value in facts.items()]
    return "\n".join([f"# Training run {run.path.name}", "", recipe.about, "", "| | |", "|---|---|", *rows])


def _stages(run: PipelineFolder) -> list[Row]:
    rows, total = list[Row](), 0.0
    for index, stage in enumerate(run.recipe.stage):
        done, begun = run.done(index), run.progress(index)
        known, left = done or begun or StageProgress(), done.model if done else ""
        state = "begun" if begun else "waiting"
        if done:
            state = "done, at its limit" if done.how == StopCause.limit.value else "done"
        total += known.seconds
        starts = evaluated(run, index) if begun and "base" in KINDS[stage.kind].takes else []
        start = ", ".join(_relative(one, run.path) for one in starts)
        spent = clock(known.seconds) if begun else ""
        rows.append((stage.name, state, spent, clock(stage.limit), str(known.starts or ""), start, left))
    return [*rows, ("all", "", clock(total), clock(run.recipe.limit), "", "", "")]


def _figures(metrics: list[dict[str, Any]], _: Path) -> Iterator[Row]:
    """Yields a row for each metric with its name, its first and last value and the number of values; separately for
    each value of `stage` in the lines of `metrics`."""
    for part in dict.fromkeys(str(line["stage"]) for line in metrics):
        lines = [numbers(line) for line in metrics if str(line["stage"]) == part]
        for name in (*FIRST, *_SPEED):
            curve = [line[name] for line in lines if name in line]
            if curve:
                yield name, as_text(name, curve[0]), as_text(name, curve[-1]), str(len(curve))


def _data(metrics: list[dict[str, Any]], folder: Path) -> Iterator[Row]:
    """Yields one row with counts of the training data that a stage produced, and of data that it left out, by reason;
    yields nothing if there are no counts."""
    newest, sums = dict[str, float](), Counter[str]()
    for line in map(numbers, metrics):
        newest |= line
        sums.update({name: int(line[name]) for name in _SUMMED if name in line})
    counts = [f"{name} {as_text(name, newest[name])}" for name in _COUNTED if name in newest]
    counts += [f"{name} {count:,}" for name, count in sums.items()]
    counts += [f"{name} {as_text(name, one)}" for name, one in newest.items() if name.startswith("left_out_")]
    for file in sorted(folder.glob("summary-*.json")):
        document = json.loads(file.read_text(encoding="utf-8"))
        counts.append(f"episodes {document['episodes']:,} of {document['tasks']:,} tasks")
        counts += [f"failures {name} {count}" for name, count in document.get("failures", {}).items()]
    if counts:
        yield (", ".join(counts).replace("_", " "),)


def _evaluations(run: PipelineFolder) -> str:
    """Returns the report's section with the results on held-out tasks, a row for each model."""
    results = []
    for index in (index for index in range(len(run.recipe.stage)) if run.done(index)):
        for which, row in sorted(figures_of(run, index).items()):
            model = _relative(evaluated(run, index)[which], run.path)
            results.append((run.recipe.stage[index].name, model, numbers(row)))
    names = list(dict.fromkeys(name for *_, row in results for name in row if name != "checkpoint"))
    cells = [(*key, *(as_text(name, row[name]) if name in row else "" for name in names)) for *key, row in results]
    head = ["stage", "model", *(f":{name.replace('_', ' ')}" for name in names)]
    text = _table("Held-out tasks", head, cells)
    if text and any(one.choose for one in run.recipe.stage):
        text += "\n\nThe exported model is the best of these by the same tasks, so its own figure is a little too good."
    return text


def _relative(path: Path | str, folder: Path) -> str:
    path = Path(path)
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
