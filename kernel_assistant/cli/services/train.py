"""`kernel-assistant train`: runs all stages of a training recipe, or one stage, in processes of their own, because
they load torch."""

from __future__ import annotations

import importlib.util
import os
import sys

import click

from kernel_assistant.errors import MissingError, UsageError

#: Stage → what it does. Their options are the stages' own.
STAGES = {
    "synth": "tasks out of what is installed, filtered by running them",
    "label": "the generator's candidates for those tasks, judged",
    "pretrain": "a model from pairs of a task and the generator's text",
    "episodes": "lessons, played in the real environment",
    "sft": "fine-tuning on episodes",
    "ppo-single": "PPO, one reply an episode",
    "rft": "rejection fine-tuning on episodes that the model plays",
    "critic": "the value head, before PPO with several turns",
    "ppo-agent": "PPO, several turns an episode",
    "eval": "a model on held-out tasks",
    "export": "a folder as one 8-bit GGUF file",
}
_NEEDED = ("torch", "transformers", "tokenizers", "safetensors")
_PIPELINE = "pipeline"


class _Stages(click.Command):
    """A command whose help lists the recipes and the stages."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Recipes (or a TOML file of yours, docs/training_recipes.md)"):
            formatter.write_dl(
                [
                    ("smoke", "every stage in minutes, on the CPU: to see that all of it works"),
                    ("small", "a model as small as the shipped one, all stages in 25 minutes of one H200"),
                    ("base", "any Hugging Face model: --base FOLDER or OWNER/NAME"),
                ]
            )
        with formatter.section("Stages (train STAGE --help has the options of each)"):
            formatter.write_dl(list(STAGES.items()))


@click.command(
    "train",
    cls=_Stages,
    # Words after the stage are the stage's own, --help too.
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False, "max_content_width": 110},
)
@click.option("--recipe", metavar="NAME|FILE", help="Recipe whose stages run, one after another.")
@click.option("--out", metavar="RUN", help="Folder of the run; one that is there goes on where it stopped.")
@click.option(
    "--base", metavar="MODEL", help="Model to begin with: scratch, shipped, a folder, a GGUF file, OWNER/NAME."
)
@click.option("--seed", type=int, help="Seed of all stages.  [default: the recipe's]")
@click.option("--from", "first", metavar="STAGE", help="Stage that is done again, with those behind it.")
@click.option("--until", "last", metavar="STAGE", help="Stage that is the last to run now.")
@click.option("--name", help="Name under which the model is registered.  [default: that of RUN's folder]")
@click.option("--use", is_flag=True, help="Selection of the model: it is used from then on.")
@click.option("--dry-run", is_flag=True, help="Stages and their options alone: nothing is done. Stages have it too.")
@click.argument("stage", required=False, metavar="[STAGE]")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[STAGE'S OPTIONS]")
def train_command(
    stage: str | None,
    words: tuple[str, ...],
    recipe: str | None,
    out: str | None,
    base: str | None,
    seed: int | None,
    first: str | None,
    last: str | None,
    name: str | None,
    use: bool,
    dry_run: bool,
) -> None:
    """Train a model that writes kernels: all stages of a recipe, or one STAGE.

    \b
    kernel-assistant train --recipe smoke --out runs/first
    kernel-assistant train ppo-agent --base runs/first/06-critic/checkpoint-000010 --out runs/more

    The same command goes on where it was ended. Ctrl-C ends the running stage with its checkpoint; the terminal
    interface (kernel-assistant tui) shows curves, pauses and stops.
    """
    asked = {"--recipe": recipe, "--out": out, "--base": base, "--seed": seed}
    asked |= {"--from": first, "--until": last, "--name": name}
    given = [word for name, value in asked.items() if value is not None for word in (name, str(value))]
    given += [name for name, value in {"--use": use, "--dry-run": dry_run}.items() if value]
    if stage is None:
        _check_recipe(recipe, out, dry_run=dry_run)
        # A dry run writes nothing into the folder, so that it need not be named.
        _become(_PIPELINE, [*given, *([] if out is not None else ["--out", "run"])])
    if given:
        raise UsageError(
            f"{given[0]} stands before the stage {stage}", f"a stage's options stand behind it: train {stage} …"
        )
    if stage not in STAGES:
        raise click.UsageError(f"no stage {stage!r}: {', '.join(STAGES)}")
    _become(stage, list(words))


def _check_recipe(recipe: str | None, out: str | None, *, dry_run: bool) -> None:
    if recipe is None:
        raise UsageError("neither a recipe nor a stage", "kernel-assistant train --recipe smoke --out RUN; or --help")
    if out is None and not dry_run:
        raise UsageError("a run needs a folder", "name one: --out RUN")


def _become(command: str, words: list[str]) -> None:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingError(f"not installed: {', '.join(missing)}", "pip install 'kernel-assistant[train]'")
    sys.stdout.flush()
    # In place of this process: it gets the signals, and its exit code is the command's.
    os.execv(sys.executable, [sys.executable, "-m", "kernel_assistant_training", command.replace("-", "_"), *words])
