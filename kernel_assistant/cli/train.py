"""`kernel-assistant train STAGE`: one stage of training, in a process of its own that loads torch."""

from __future__ import annotations

import importlib.util
import os
import sys

import click

from kernel_assistant.errors import MissingError

#: Stage → what it does. Their options are the stages' own.
STAGES = {
    "synth": "tasks out of what is installed, filtered by running them",
    "label": "the generator's candidates for those tasks, judged",
    "pretrain": "un-run pairs of the generator's teacher",
    "sft": "real episodes",
    "ppo-single": "PPO, one reply an episode",
    "rft": "rejection fine-tuning on episodes that the model plays",
    "critic": "the value head, before PPO with several turns",
    "ppo-agent": "PPO, several turns an episode",
    "export": "a folder as one 8-bit GGUF file",
    "plot": "a run, or several seeds of it, as PNG and SVG",
}
_NEEDED = ("torch", "transformers", "tokenizers", "safetensors")


@click.command(
    "train",
    # What stands behind the stage is the stage's, --help too.
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Stages: " + "; ".join(f"{name} ({what})" for name, what in STAGES.items()) + ".",
)
@click.argument("stage", type=click.Choice(list(STAGES)), metavar="STAGE")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS]")
def train_command(stage: str, words: tuple[str, ...]) -> None:
    """Run one STAGE of training; `train STAGE --help` has its options. A stage that was ended goes on where it was."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingError(f"not installed: {', '.join(missing)}", "pip install 'kernel-assistant[train]'")
    sys.stdout.flush()
    # In place of this process: it gets the signals, and its exit code is the command's.
    command = [sys.executable, "-m", "kernel_assistant_training", stage.replace("-", "_"), *words]
    os.execv(sys.executable, command)
