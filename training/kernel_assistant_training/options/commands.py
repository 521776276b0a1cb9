"""The commands of `python -m kernel_assistant_training`: for each command the dataclass of its options, and the module
whose `main` is called with the options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click

from kernel_assistant_training.options import data, stages
from kernel_assistant_training.options.command_line import command_of, invoke


@dataclass(frozen=True)
class TrainingStage:
    """The options of a command, and its module. The module is imported only when the command runs, because it may load
    torch."""

    options: type[Any]
    module: str


COMMANDS: Mapping[str, TrainingStage] = {
    "tokenizer": TrainingStage(data.TokenizerArguments, "tokenizer"),
    "pretrain": TrainingStage(stages.PretrainOptions, "stages.pretrain"),
    "sft": TrainingStage(stages.SftArguments, "stages.sft"),
    "ppo_single": TrainingStage(stages.PpoSingleArguments, "stages.ppo"),
    "rft": TrainingStage(stages.RftArguments, "stages.rft"),
    "critic": TrainingStage(stages.CriticArguments, "stages.critic"),
    "ppo_agent": TrainingStage(stages.PpoAgentArguments, "stages.ppo"),
    "export": TrainingStage(stages.ExportArguments, "stages.export"),
    "synth": TrainingStage(data.SynthArguments, "tasks.command"),
    "label": TrainingStage(data.LabelArguments, "tasks.label"),
    "eval": TrainingStage(stages.EvalArguments, "stages.evaluate"),
    "episodes": TrainingStage(data.EpisodesArguments, "episodes.run"),
    "pipeline": TrainingStage(data.PipelineArguments, "pipeline.command"),
}


def command(name: str) -> click.Command:
    """Returns the click command of a stage. Showing its help does not load torch."""
    stage = COMMANDS[name]

    def run(options: object) -> None:
        import_module(f"kernel_assistant_training.{stage.module}").main(options)

    typed = "" if name == "pipeline" else f" {name.replace('_', '-')}"
    return command_of(stage.options, f"kernel-assistant train{typed}", run)


def run_command(name: str, words: list[str]) -> None:
    """Runs the command `name` with `words` as its arguments. Raises UsageError for invalid words, and the errors of the
    command."""
    invoke(command(name), words)
