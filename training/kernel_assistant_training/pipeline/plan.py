"""Describes a recipe or a stage for `--dry-run`, without running anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernel_assistant.session.training_stages import clock, stage_folder
from kernel_assistant_training.options.command_line import UNBOUNDED, command_of
from kernel_assistant_training.pipeline.inputs import parsed_options
from kernel_assistant_training.pipeline.kinds import words
from kernel_assistant_training.pipeline.recipe import Recipe


def plan(recipe: Recipe, out: Path) -> str:
    """Returns the description of a recipe. It has a row for each stage: its time limit, its folder in `out`, and its
    command with the recipe's options."""
    rows = [("limit", "folder", "command")]
    for index, stage in enumerate(recipe.stage):
        command = " ".join([f"train {stage.kind}", *words(stage.options)])
        rows.append((clock(stage.limit), str(stage_folder(out, index, stage.name)), command))
    rows.append((clock(recipe.limit), "all", ""))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"{limit:>{widths[0]}}  {folder:{widths[1]}}  {command}".rstrip() for limit, folder, command in rows]
    about = [recipe.about] if recipe.about else []
    return "\n".join([*about, f"from {recipe.base}, on {recipe.target}, seed {recipe.seed}", "", *lines])


def single(kind: str, given: Sequence[str]) -> str:
    """Returns a description of the stage `kind`: its options that have a value, either from the words `given` or by
    default. Raises UsageError for options that the stage does not have."""
    options = parsed_options(kind, given, kind)
    values = {one.opts[0]: getattr(options, str(one.name)) for one in command_of(type(options), kind, str).params}
    lines = [f"train {kind}"]
    for name, value in values.items():
        if value not in (None, "", (), *UNBOUNDED) and value is not False:
            lines.append(f"  {name} {' '.join(map(str, value)) if isinstance(value, tuple) else value}")
    return "\n".join(lines)
