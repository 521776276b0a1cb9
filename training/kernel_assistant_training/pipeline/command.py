"""`python -m kernel_assistant_training pipeline --recipe NAME --out RUN`: runs all stages of a recipe."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from kernel_assistant.errors import StoreError, UsageError
from kernel_assistant.records import decode
from kernel_assistant.session.training_stages import RECIPE
from kernel_assistant_training.interrupts import Interrupted
from kernel_assistant_training.options.data import PipelineArguments
from kernel_assistant_training.pipeline.board import Board
from kernel_assistant_training.pipeline.finish import finish
from kernel_assistant_training.pipeline.inputs import beginning, check
from kernel_assistant_training.pipeline.pipeline import Pipeline, StageFailed
from kernel_assistant_training.pipeline.plan import plan
from kernel_assistant_training.pipeline.process import StopCause
from kernel_assistant_training.pipeline.recipe import Recipe, load
from kernel_assistant_training.pipeline.report import write_report
from kernel_assistant_training.pipeline.run_folder import PipelineFolder


def main(options: PipelineArguments) -> None:
    """Runs the pipeline, or prints its plan with `dry_run`. Raises Interrupted after a signal, UsageError for an
    invalid recipe, option or folder, StoreError if a file cannot be written, and StageFailed."""
    recipe = _recipe(options)
    check(recipe)
    if options.dry_run:
        sys.stdout.write(plan(recipe, options.out) + "\n")
        return
    name = options.name or re.sub(r"[^A-Za-z0-9._-]+", "-", options.out.absolute().name).strip("-._") or "trained"
    first = recipe.index(options.first) if options.first else None
    last = recipe.index(options.last) if options.last else len(recipe.stage) - 1
    with PipelineFolder(options.out, recipe) as run, Board() as board:
        beginning(recipe)
        if first is not None and (aside := run.set_aside(first)) is not None:
            board.say(f"what was there is in {aside}")
        pipeline = Pipeline(run, board, name)
        try:
            cause = pipeline.go(last)
        except StageFailed:
            # The error of the stage matters more than a report that cannot be written.
            with suppress(StoreError, UsageError):
                write_report(run)
            raise
        whole = cause is StopCause.itself and last + 1 == len(recipe.stage)
        for line in finish(run, name, use=options.use) if whole else ():
            board.say(line)
        board.say(f"report: {write_report(run)}")
        if not whole:
            board.say(f"{cause.value}; go on: kernel-assistant train --recipe {options.recipe} --out {options.out}")
    if cause is StopCause.interrupted:
        raise Interrupted(pipeline.signals[0])


def _recipe(options: PipelineArguments) -> Recipe:
    """Returns the recipe with the options of the command line. If the run has begun, options that are not given keep
    the values of the run. The path of a base model becomes absolute, so that the run can continue from another folder.
    Raises UsageError if the recipe is unknown or invalid."""
    recipe = load(options.recipe)
    begun = options.out / RECIPE
    before = decode(begun.read_bytes(), Recipe) if begun.is_file() else recipe
    base = before.base if options.base is None else options.base
    path = Path(base).expanduser()
    base = str(path.absolute()) if base not in ("scratch", "shipped") and path.exists() else base
    return msgspec.structs.replace(recipe, base=base, seed=before.seed if options.seed is None else options.seed)
