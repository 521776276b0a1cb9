"""What a stage starts from: the model and the files that stages before it left."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from kernel_assistant.config import resolve
from kernel_assistant.errors import UsageError
from kernel_assistant.serving.convert_run import derived_folder
from kernel_assistant.serving.registry import SHIPPED
from kernel_assistant_training.pipeline.kinds import KINDS, TIMED_EACH_START, words
from kernel_assistant_training.pipeline.recipe import START, Recipe, Stage
from kernel_assistant_training.pipeline.state import RunFolder

#: Where `eval` writes a line for each model.
EVALUATED = "evaluations_held_out.jsonl"
#: Of a limit, what a stage with a clock that begins anew with each start has for beginning and ending: a part, at most
#: so many seconds.
SPARE, MOST_SPARE_S = 0.2, 15.0
#: Kinds whose folders have what an option asks for.
_LEFT_BY = {
    "episodes": ("episodes",),
    "shards": ("synth",),
    "tasks": ("synth",),
    "trajectories": ("rft",),
    "known": ("ppo-single", "rft", "critic", "ppo-agent"),
}
#: Those of which all stages before count, by the names of their files.
_FILES = {"episodes": "episodes-*.jsonl", "known": "evaluations.jsonl"}


def check(recipe: Recipe) -> None:
    """Raises UsageError where a stage would have nothing to start from."""
    for place, stage in enumerate(recipe.stage):
        kind = KINDS[stage.of_kind]
        before = recipe.stage[:place]
        for need in kind.needs:
            if need in stage.options:
                continue
            makers = [one for one in before if _leaves(one, need)]
            if need == "base" and recipe.base != "scratch" and stage.of in ("", START):
                continue
            if not makers or (stage.of == START and need == "base"):
                what = "a model" if need == "base" else need
                raise UsageError(
                    f"stage {stage.name} has no {what.removeprefix('a ')} to start from",
                    f"put a stage before it that leaves {what}" + ("" if need != "base" else ", or name --base"),
                )
        if stage.choose and not any(one.of_kind == "eval" for one in before):
            raise UsageError(f"stage {stage.name} is to choose, but no eval stage is before it", "put one there")


def _leaves(stage: Stage, need: str) -> bool:
    return KINDS[stage.of_kind].learns if need == "base" else stage.of_kind in _LEFT_BY[need]


def command(run: RunFolder, place: int, used: float, name: str) -> list[str]:
    """The command line of a stage that has had `used` seconds. `name` is the exported model's. Raises UsageError."""
    stage = run.recipe.stage[place]
    kind = KINDS[stage.of_kind]
    begin = [sys.executable, "-m", *_launcher(run.recipe, stage), *kind.command]
    if stage.of_kind == "export":
        folder = stage.options.get("form", "gguf") == "folder"
        target = run.folder(place) / ("model" if folder else f"{name}.gguf")
        return [*begin, str(model_for(run, place)), str(target), *words(stage.options)]
    options = {**given(run, place), **{name: _named(run, one) for name, one in stage.options.items()}}
    if stage.of_kind in TIMED_EACH_START:
        left = clock_of(stage) - used
        options["seconds"] = round(max(1.0, min(left, float(options.get("seconds", left)))), 1)
    return [*begin, *kind.words, *words(options)]


def environment(recipe: Recipe) -> dict[str, str]:
    """What stages have beside that of the pipeline."""
    threads = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return dict.fromkeys(threads, str(recipe.threads)) if recipe.threads else {}


def _launcher(recipe: Recipe, stage: Stage) -> list[str]:
    """For stages that update on several GPUs: one process for each."""
    if recipe.gpus == 1 or not KINDS[stage.of_kind].spreads:
        return []
    return ["accelerate.commands.launch", "--num_processes", str(recipe.gpus), "-m"]


def clock_of(stage: Stage) -> float:
    """Seconds of a stage with a clock, of its limit."""
    return stage.limit - min(MOST_SPARE_S, SPARE * stage.limit)


def given(run: RunFolder, place: int) -> dict[str, Any]:
    """The options of a stage that follow from the run and from what is there. Raises UsageError."""
    stage = run.recipe.stage[place]
    takes = KINDS[stage.of_kind].takes
    found: dict[str, Any] = {"out": run.folder(place), "target": run.recipe.target, "seed": run.recipe.seed}
    found = {name: value for name, value in found.items() if name in takes}
    if "base" in takes and "base" not in stage.options:
        found["base"] = evaluated(run, place) if stage.of_kind == "eval" else model_for(run, place)
    for what in _LEFT_BY:
        if what in takes and what not in stage.options:
            found[what] = _left(run, place, what)
    return found


def model_for(run: RunFolder, place: int) -> Path | str | None:
    """What the stage starts from; None from nothing. Raises UsageError."""
    stage = run.recipe.stage[place]
    if stage.choose:
        return _best(run, place, stage.choose)
    return _model_of(run, place, stage.of)


def evaluated(run: RunFolder, place: int) -> list[Path | str]:
    """The models of an eval stage, in their order."""
    stage = run.recipe.stage[place]
    found = [_model_of(run, place, name) for name in stage.models] if stage.models else [model_for(run, place)]
    return [one for one in found if one is not None]


def figures_of(run: RunFolder, place: int) -> dict[int, dict[str, Any]]:
    """What an eval stage found, by the place of the model in its list."""
    file = run.folder(place) / EVALUATED
    found = map(json.loads, file.read_text(encoding="utf-8").splitlines()) if file.is_file() else ()
    return {int(one["checkpoint"]): one for one in found}


def _model_of(run: RunFolder, place: int, name: str) -> Path | str | None:
    """Of the stage of this name, of the nearest before `place` that left one, or what the run began with."""
    before = [run.recipe.place(name)] if name not in ("", START) else [] if name else range(place - 1, -1, -1)
    for number in before:
        done = run.done(number)
        if done is not None and done.model:
            return run.path / done.model
    return beginning(run.recipe)


def beginning(recipe: Recipe) -> Path | str | None:
    """The run's base as stages take it: a folder, OWNER/NAME, or None. Raises UsageError."""
    if recipe.base == "scratch":
        return None
    path = SHIPPED if recipe.base == "shipped" else Path(recipe.base)
    if path.is_file():
        return derived_folder(path, resolve()[0])
    if path.is_dir() or recipe.base.startswith(("/", ".", "~")):
        if not (path / "config.json").is_file():
            raise UsageError(f"{path} holds no model", "name a Hugging Face folder: --base")
        return path
    return recipe.base


def _best(run: RunFolder, place: int, figure: str) -> Path | str:
    """Of the models that were evaluated before, the one with the largest figure, among equals the latest."""
    judged: list[tuple[float, int, int]] = []
    for number in range(place):
        if run.recipe.stage[number].of_kind == "eval":
            found = figures_of(run, number).items()
            judged += [(float(one[figure]), number, which) for which, one in found if figure in one]
    if not judged:
        raise UsageError(f"no eval stage gave {figure!r} to choose by", "see their output.log; or leave `choose` out")
    _, number, which = max(judged)
    return evaluated(run, number)[which]


def _left(run: RunFolder, place: int, what: str) -> list[Path] | Path | None:
    """The files of all stages, or the folder of the nearest."""
    places = [number for number in range(place) if run.recipe.stage[number].of_kind in _LEFT_BY[what]]
    if what not in _FILES:
        # Synthesis that kept nothing has no shards, and is nothing to draw from.
        made = [number for number in places if what == "trajectories" or any(run.folder(number).glob("*.parquet"))]
        return run.folder(made[-1]) if made else None
    files = [file for number in places for file in sorted(run.folder(number).glob(_FILES[what]))]
    if what == "episodes" and not files:
        raise UsageError(f"no episodes for {run.folder(place)}", "see output.log of the stage that plays them")
    return files


def _named(run: RunFolder, value: object) -> object:
    """With folders in the places of `{stage}`."""
    if isinstance(value, list):
        return [_named(run, one) for one in value]
    if not isinstance(value, str):
        return value
    for place, stage in enumerate(run.recipe.stage):
        value = value.replace(f"{{{stage.name}}}", str(run.folder(place)))
    return value
