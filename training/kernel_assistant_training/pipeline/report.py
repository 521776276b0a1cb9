"""`report.md` of a run: every stage's figures against its start, what data came to, time, machine."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kernel_assistant.errors import MissingError, StoreError, UsageError
from kernel_assistant_training.pipeline.board import clock
from kernel_assistant_training.pipeline.figures import lines, numbers, said
from kernel_assistant_training.pipeline.finish import exported
from kernel_assistant_training.pipeline.machine import describe
from kernel_assistant_training.pipeline.process import Ending
from kernel_assistant_training.pipeline.starts import evaluated, figures_of
from kernel_assistant_training.pipeline.state import RunFolder, write_whole

REPORT = "report.md"
#: Of a stage's figures those that say whether it learned, and what it was fed with.
_TOLD = (
    "loss",
    "answer_loss",
    "answer_right",
    "reward",
    "held_out_reward",
    "pass_rate",
    "held_out_pass_rate",
    "faster_eager_rate",
    "faster_compile_rate",
    "held_out_faster_compile_rate",
    "kl_reference",
    "entropy",
    "explained_variance",
    "value_loss",
    "episode_turns",
    "episode_tokens",
    "tokens_per_s",
    "generated_tokens_per_s",
    "evaluations_per_s",
)
#: Counts: what there was at the end, and what each line has its own of.
_COUNTED = ("tasks", "kept_rate", "kept", "rows")
_SUMMED = ("episodes", "evaluations", "evaluations_repeated", "evaluations_void")
_LEFT_OUT = "left_out_"


def write_report(run: RunFolder) -> Path:
    """Written whole, with the plots beside it where they can be drawn. Raises StoreError."""
    plots, why = _plots(run.path)
    text = "\n".join(
        [*_head(run), *_stages(run), *_figures(run), *_data(run), *_evaluations(run), *_drawn(run, plots, why)]
    )
    write_whole(run.path / REPORT, (text.rstrip() + "\n").encode())
    return run.path / REPORT


def _head(run: RunFolder) -> Iterator[str]:
    recipe = run.recipe
    yield from [f"# Training run {run.path.name}", "", recipe.about, ""]
    yield from ["| | |", "|---|---|"]
    model = exported(run)
    facts = {"base": recipe.base, "target": recipe.target, "seed": str(recipe.seed), **describe(recipe.target)}
    facts |= {"model": _relative(model, run.path) if model else "none yet"}
    yield from (f"| {name} | {value} |" for name, value in facts.items())
    yield ""


def _stages(run: RunFolder) -> Iterator[str]:
    yield from [
        "## Stages",
        "",
        "| stage | state | time | limit | starts | from | left |",
        "|---|---|---:|---:|---:|---|---|",
    ]
    total = 0.0
    for place, stage in enumerate(run.recipe.stage):
        done, begun = run.done(place), run.progress(place)
        state = (
            {Ending.limit.value: "done, at its limit"}.get(done.how, "done")
            if done
            else "begun"
            if begun
            else "waiting"
        )
        seconds = done.seconds if done else begun.seconds if begun else 0.0
        starts = done.starts if done else begun.starts if begun else 0
        total += seconds
        cells = (
            stage.name,
            state,
            clock(seconds) if begun else "",
            clock(stage.limit),
            str(starts or ""),
            _from(run, place) if begun else "",
            done.model if done else "",
        )
        yield f"| {' | '.join(cells)} |"
    yield from [f"| all | | {clock(total)} | {clock(run.recipe.limit)} | | | |", ""]


def _from(run: RunFolder, place: int) -> str:
    """What its last command was given as a base."""
    log = run.folder(place) / "output.log"
    found = ""
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else ():
        if line.startswith('{"command"'):
            command = json.loads(line)["command"]
            kind = run.recipe.stage[place].of_kind
            found = command[4] if kind == "export" else _behind(command, "--base")
    return _relative(Path(found), run.path) if found else ""


def _behind(words: Sequence[str], name: str) -> str:
    return words[words.index(name) + 1] if name in words else ""


def _figures(run: RunFolder) -> Iterator[str]:
    rows: list[str] = []
    for place, stage in enumerate(run.recipe.stage):
        by_stage: dict[str, list[dict[str, Any]]] = {}
        for one in lines(run.watched(place)):
            by_stage.setdefault(str(one["stage"]), []).append(one)
        for found in by_stage.values():
            for name in _TOLD:
                curve = [each[name] for each in map(numbers, found) if name in each]
                if curve:
                    cells = (stage.name, name, said(name, curve[0]), said(name, curve[-1]), str(len(curve)))
                    rows.append(f"| {' | '.join(cells)} |")
    if rows:
        yield from [
            "## Figures",
            "",
            "| stage | figure | first | last | points |",
            "|---|---|---:|---:|---:|",
            *rows,
            "",
        ]


def _data(run: RunFolder) -> Iterator[str]:
    """What was made to learn from, and why some of it was not taken."""
    rows: list[str] = []
    for place, stage in enumerate(run.recipe.stage):
        newest, sums = dict[str, float](), Counter[str]()
        for one in map(numbers, lines(run.watched(place))):
            newest |= one
            sums.update({name: int(one[name]) for name in _SUMMED if name in one})
        counts = [f"{name} {said(name, newest[name])}" for name in _COUNTED if name in newest]
        counts += [f"{name} {count:,}" for name, count in sums.items()]
        counts += [f"{name} {said(name, one)}" for name, one in newest.items() if name.startswith(_LEFT_OUT)]
        summary = sorted(run.folder(place).glob("summary-*.json"))
        counts += [text for file in summary for text in _episodes(file)]
        if counts:
            rows.append(f"| {stage.name} | {', '.join(counts).replace('_', ' ')} |")
    if rows:
        yield from ["## Data", "", "| stage | at its end |", "|---|---|", *rows, ""]


def _episodes(file: Path) -> Iterator[str]:
    document = json.loads(file.read_text(encoding="utf-8"))
    yield f"episodes {document['episodes']:,} of {document['tasks']:,} tasks"
    yield from (f"failures {name} {count}" for name, count in document.get("failures", {}).items())


def _evaluations(run: RunFolder) -> Iterator[str]:
    """Held-out tasks, model by model."""
    found: list[tuple[str, str, dict[str, float]]] = []
    for place, stage in enumerate(run.recipe.stage):
        if stage.of_kind == "eval" and run.done(place) is not None:
            models = evaluated(run, place)
            for which, figures in sorted(figures_of(run, place).items()):
                found.append((stage.name, _relative(Path(models[which]), run.path), numbers(figures)))
    if not found:
        return
    names = list(dict.fromkeys(name for _, _, figures in found for name in figures if name != "checkpoint"))
    yield from ["## Held-out tasks", ""]
    yield f"| stage | model | {' | '.join(name.replace('_', ' ') for name in names)} |"
    yield f"|---|---|{'---:|' * len(names)}"
    for name, model, figures in found:
        cells = [said(each, figures[each]) if each in figures else "" for each in names]
        yield f"| {name} | {model} | {' | '.join(cells)} |"
    yield ""
    if any(one.choose for one in run.recipe.stage):
        yield "The exported model is the best of these by the same tasks, so its own figure is a little too good."
        yield ""


def _drawn(run: RunFolder, plots: Sequence[Path], why: str) -> Iterator[str]:
    pictures = [path for path in plots if path.suffix == ".png"]
    if pictures:
        yield from ["## Plots", ""]
        yield from (f"![{path.stem}]({_relative(path, run.path)})" for path in pictures)
    elif why:
        yield f"No plots: {why}."


def _plots(run: Path) -> tuple[list[Path], str]:
    """Those that can be drawn, and why there are none."""
    from kernel_assistant_training.tracking.report import write_plots

    try:
        return write_plots(run), ""
    except (MissingError, StoreError, UsageError) as error:
        return [], f"{error.cause} ({error.next_step})"


def _relative(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
