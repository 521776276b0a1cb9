"""`python -m kernel_assistant_training pipeline --recipe NAME --out RUN`: all stages of a recipe."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from kernel_assistant.errors import StoreError, UsageError
from kernel_assistant.records import decode
from kernel_assistant_training.interrupts import Interrupted
from kernel_assistant_training.pipeline.board import board
from kernel_assistant_training.pipeline.finish import finish
from kernel_assistant_training.pipeline.pipeline import Outcome, Pipeline, StageFailed
from kernel_assistant_training.pipeline.plan import checked, plan
from kernel_assistant_training.pipeline.recipe import Recipe, load
from kernel_assistant_training.pipeline.report import write_report
from kernel_assistant_training.pipeline.starts import beginning, check
from kernel_assistant_training.pipeline.state import RECIPE, RunFolder


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="kernel_assistant_training pipeline", description=__doc__)
    found.add_argument("--recipe", required=True, help="a recipe's name, or a TOML file")
    found.add_argument("--out", type=Path, required=True, help="the run's folder; one that is there goes on")
    found.add_argument("--base", default=None, help="scratch, shipped, a folder, a GGUF file or OWNER/NAME")
    found.add_argument("--seed", type=int, default=None, help="of all stages")
    found.add_argument("--from", dest="first", default="", metavar="STAGE", help="do it again, and those behind it")
    found.add_argument("--until", dest="last", default="", metavar="STAGE", help="the last one that runs now")
    found.add_argument("--name", default="", help="under which the model is registered")
    found.add_argument("--use", action="store_true", help="use the model from then on")
    found.add_argument("--dry-run", action="store_true", help="say what it takes, and do nothing")
    return found


def main(words: list[str]) -> None:
    """Raises Interrupted where it was, UsageError, StoreError, StageFailed."""
    options = parser().parse_args(words)
    recipe = _recipe(options)
    check(recipe)
    if options.dry_run:
        sys.stdout.write(plan(recipe) + "\n")
        return
    name = options.name or re.sub(r"[^A-Za-z0-9._-]+", "-", options.out.absolute().name).strip("-._") or "trained"
    first = recipe.place(options.first) if options.first else None
    last = recipe.place(options.last) if options.last else len(recipe.stage) - 1
    again = f"kernel-assistant train --recipe {options.recipe} --out {options.out}"
    with RunFolder(options.out, recipe) as run, board() as shown:
        beginning(recipe)
        checked(recipe)
        if first is not None:
            _set_aside(run, first, shown.say)
        pipeline = Pipeline(run, shown, name)
        try:
            outcome = pipeline.go(last)
        except StageFailed:
            # Why it failed counts, also where that leaves no room for a report.
            with suppress(StoreError):
                write_report(run)
            raise
        whole = outcome is Outcome.ended and last + 1 == len(recipe.stage)
        for line in finish(run, name, use=options.use) if whole else ():
            shown.say(line)
        shown.say(f"report: {write_report(run)}")
        if not whole:
            shown.say(f"{outcome.value}; go on: {again}")
    if outcome is Outcome.interrupted:
        raise Interrupted(pipeline.signal)


def _recipe(options: argparse.Namespace) -> Recipe:
    """As it is asked for; what is left out is as the run began. Raises UsageError."""
    recipe = load(options.recipe)
    begun = options.out / RECIPE
    before = decode(begun.read_bytes(), Recipe) if begun.is_file() else recipe
    base = before.base if options.base is None else options.base
    seed = before.seed if options.seed is None else options.seed
    return msgspec.structs.replace(recipe, base=_absolute(base), seed=seed)


def _absolute(base: str) -> str:
    """A path is one wherever the run is gone on with."""
    if base not in ("scratch", "shipped") and Path(base).expanduser().exists():
        return str(Path(base).expanduser().absolute())
    return base


def _set_aside(run: RunFolder, first: int, say: Callable[[str], None]) -> None:
    missing = [run.recipe.stage[place].name for place in range(first) if run.done(place) is None]
    if missing:
        name = run.recipe.stage[first].name
        raise UsageError(f"--from {name}: {', '.join(missing)} before it is not done", "leave --from out: it goes on")
    aside = run.set_aside(first)
    if aside is not None:
        say(f"what was there is in {aside}")
