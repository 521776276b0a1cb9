"""Builds the command line of a stage: finds the model from which the stage starts, and the files of earlier stages that
it reads."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernel_assistant.config import resolve
from kernel_assistant.errors import UsageError
from kernel_assistant.serving.convert_run import derived_folder
from kernel_assistant.serving.registry import SHIPPED
from kernel_assistant_training.options.command_line import parse
from kernel_assistant_training.pipeline.kinds import KINDS, words
from kernel_assistant_training.pipeline.recipe import START, Recipe, RecipeStage
from kernel_assistant_training.pipeline.run_folder import PipelineFolder
from kernel_assistant_training.tracking import EVALUATED
from kernel_assistant_training.tracking.metrics import read_objects

#: The part of a limit that is reserved for starting and ending, for stages whose time counts from each start; at most
#: so many seconds.
SPARE, MOST_SPARE_S = 0.2, 15.0
#: For each option, the kinds of stages whose folders provide it.
_LEFT_BY = {
    "episodes": ("episodes",),
    "shards": ("synth",),
    "tasks": ("synth",),
    "trajectories": ("rft",),
    "known": ("ppo-single", "rft", "critic", "ppo-agent"),
}
#: Options that collect the files of all earlier stages, and the pattern of their names.
_FILES = {"episodes": "episodes-*.jsonl", "known": "evaluations.jsonl"}


def check(recipe: Recipe) -> None:
    """Raises UsageError if a stage does not accept its options, if neither the recipe nor an earlier stage provides an
    input that the stage needs, or if it chooses a model and no `eval` stage is before it."""
    for index, stage in enumerate(recipe.stage):
        kind = KINDS[stage.kind]
        for need in kind.needs:
            if need not in stage.options and not _is_left(recipe, index, need):
                what, hint = ("model", "a model, or name --base") if need == "base" else (need, need)
                cause = f"stage {stage.name} has no {what} to start from"
                raise UsageError(cause, f"put a stage before it that leaves {hint}")
        if stage.choose and not any(one.kind == "eval" for one in recipe.stage[:index]):
            raise UsageError(f"stage {stage.name} is to choose, but no eval stage is before it", "put one there")
        # Folders that do not exist yet are all "." here.
        known: dict[str, Any] = {"seed": recipe.seed, "target": recipe.target, "base": ["."] * len(stage.models) or "."}
        given = {name: known.get(name, ".") for name in kind.takes}
        parsed_options(stage.kind, _arguments(stage, given, {}, 0.0), f"stage {stage.name}")


def parsed_options(kind: str, given: Sequence[str], name: str) -> Any:
    """Parses the command line `given` of a stage and returns its options. Raises UsageError for invalid options; the
    message begins with `name`."""
    try:
        return parse(KINDS[kind].options, f"kernel-assistant train {kind}", given)
    except UsageError as error:
        raise UsageError(f"{name}: {error.cause}", error.next_step) from error


def command(run: PipelineFolder, index: int, used: float, name: str) -> list[str]:
    """Returns the command line of stage number `index`, which has already run for `used` seconds. `name` is the name of
    the exported model. Raises UsageError if an input is missing."""
    stage, gpus = run.recipe.stage[index], run.recipe.gpus
    kind = KINDS[stage.kind]
    options = given(run, index)
    if stage.kind == "export":
        options["file"] = run.folder(index) / ("model" if stage.options.get("form") == "folder" else f"{name}.gguf")
    folders = {one.name: run.folder(number) for number, one in enumerate(run.recipe.stage)}
    # One process for each GPU.
    spread = ["accelerate.commands.launch", "--num_processes", str(gpus), "-m"] if gpus > 1 and kind.spreads else []
    return [sys.executable, "-m", *spread, *kind.command, *_arguments(stage, options, folders, used)]


def given(run: PipelineFolder, index: int) -> dict[str, Any]:
    """Returns name → value of the options of a stage that the recipe does not set, and that the pipeline therefore
    sets. Raises UsageError if an input is missing."""
    stage = run.recipe.stage[index]
    options: dict[str, Any] = {}
    for name in KINDS[stage.kind].takes:
        if name in stage.options:
            continue
        if name in _LEFT_BY:
            options[name] = _left(run, index, name)
        elif name == "base":
            models = evaluated(run, index)
            options[name] = models if stage.kind == "eval" else models[0] if models else None
        elif name != "file":
            options[name] = run.folder(index) if name == "out" else getattr(run.recipe, name)
    return options


def evaluated(run: PipelineFolder, index: int) -> list[Path | str]:
    """Returns the models that an `eval` stage evaluates, in order. For a stage of another kind, returns the model from
    which it starts, if there is one. Raises UsageError if a model cannot be found."""
    stage = run.recipe.stage[index]
    if stage.choose and not stage.models:
        return [_best(run, index, stage.choose)]
    models = [_model_of(run, index, name) for name in stage.models or (stage.of,)]
    return [one for one in models if one is not None]


def figures_of(run: PipelineFolder, index: int) -> dict[int, dict[str, Any]]:
    """Returns the results of an `eval` stage: index of the evaluated model → metrics; {} for a stage of another
    kind."""
    is_eval = run.recipe.stage[index].kind == "eval"
    return {int(one["checkpoint"]): one for one in read_objects(run.folder(index) / EVALUATED) if is_eval}


def beginning(recipe: Recipe) -> Path | str | None:
    """Returns the run's base model in a form that stages accept: a folder, OWNER/NAME, or None for "scratch". Raises
    UsageError if the folder holds no model."""
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


def _arguments(stage: RecipeStage, given: Mapping[str, Any], folders: Mapping[str, Path], used: float) -> list[str]:
    """Returns the arguments of the stage's command: the options `given` by the pipeline and those of the recipe.
    `{name}` in the recipe's options is replaced by the folder of the stage `name`. `used` are the seconds that the
    stage has run."""
    kind = KINDS[stage.kind]
    options = {**given, **{name: _named(one, folders) for name, one in stage.options.items()}}
    if kind.timed == "each start":
        left = stage.limit - min(MOST_SPARE_S, SPARE * stage.limit) - used
        options["seconds"] = round(max(1.0, min(left, float(options.get("seconds", left)))), 1)
    return [*(str(options.pop(name)) for name in kind.arguments), *kind.words, *words(options)]


def _named(value: Any, folders: Mapping[str, Path]) -> Any:
    if isinstance(value, list):
        return [_named(one, folders) for one in value]
    for name, folder in folders.items() if isinstance(value, str) else ():
        value = value.replace(f"{{{name}}}", str(folder))
    return value


def _is_left(recipe: Recipe, index: int, need: str) -> bool:
    """Whether the recipe's base model or a stage before number `index` provides the input `need` (an option's name)."""
    stage, before = recipe.stage[index], recipe.stage[:index]
    if need != "base":
        return any(one.kind in _LEFT_BY[need] for one in before)
    from_base = recipe.base != "scratch" and stage.of in ("", START)
    return from_base or (stage.of != START and any(KINDS[one.kind].model for one in before))


def _model_of(run: PipelineFolder, index: int, name: str) -> Path | str | None:
    """Returns the model that the stage `name` made. If `name` is "", returns the model of the nearest stage before
    `index` that made one. If there is no such model, or if `name` is `start`, returns the recipe's base model (None: no
    weights)."""
    before = [] if name == START else [run.recipe.index(name)] if name else reversed(range(index))
    left = (run.path / done.model for number in before if (done := run.done(number)) is not None and done.model)
    return next(left, None) or beginning(run.recipe)


def _best(run: PipelineFolder, index: int, figure: str) -> Path | str:
    """Returns the model with the largest `figure` (the name of a metric) among the models that were evaluated before
    stage `index`; the latest if several are equal. Raises UsageError if there is none."""
    results = [(number, which, one) for number in range(index) for which, one in figures_of(run, number).items()]
    judged = [(float(one[figure]), number, which) for number, which, one in results if figure in one]
    if not judged:
        raise UsageError(f"no eval stage gave {figure!r} to choose by", "see their output.log; or leave `choose` out")
    _, number, which = max(judged)
    return evaluated(run, number)[which]


def _left(run: PipelineFolder, index: int, what: str) -> list[Path] | Path | None:
    """Returns the input `what` (an option's name) of stage `index`: the files of all earlier stages that provide it, or
    the folder of the nearest stage that does, None if there is none. Raises UsageError if there are no episodes."""
    folders = [run.folder(number) for number in range(index) if run.recipe.stage[number].kind in _LEFT_BY[what]]
    if what not in _FILES:
        # Synthesis that kept no task writes no shards.
        made = [folder for folder in folders if what == "trajectories" or any(folder.glob("*.parquet"))]
        return made[-1] if made else None
    files = [file for folder in folders for file in sorted(folder.glob(_FILES[what]))]
    if what == "episodes" and not files:
        raise UsageError(f"no episodes for {run.folder(index)}", "see output.log of the stage that plays them")
    return files
