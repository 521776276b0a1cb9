"""`python -m kernel_assistant_training synth`: makes tasks from installed packages and with a language model;
docs/tasks.md."""

from __future__ import annotations

import time

import click

from kernel_assistant.config import resolve
from kernel_assistant.errors import MissingError, UsageError
from kernel_assistant.policy.connect import connect
from kernel_assistant.targets import cuda
from kernel_assistant_training.options.data import SynthArguments
from kernel_assistant_training.tasks.candidates.composer import Composer
from kernel_assistant_training.tasks.stage import SynthesisOptions, SynthesisSettings, synthesise


def main(asked: SynthArguments) -> None:
    """Makes the tasks and prints the data card. Raises UsageError for options that do not fit together, and
    MissingError if a GPU, a package or a program is missing."""
    if asked.answers and not (asked.endpoint or asked.model):
        raise UsageError("--answers without a model to ask", "name one: --endpoint URL, or --model NAME")
    settings = SynthesisSettings(
        asked.target, asked.recipe, asked.seed, asked.blocks, asked.variants, asked.backend, asked.answers
    )
    options = SynthesisOptions(
        asked.out,
        settings,
        asked.count,
        devices(asked.target, asked.workers),
        asked.sandbox,
        asked.most,
        time.monotonic() + asked.seconds,
    )
    if not asked.answers:
        click.echo(synthesise(options))
        return
    connection = connect(resolve()[0], asked.endpoint, asked.model)
    client = connection.client(asked.seed)
    try:
        click.echo(synthesise(options, Composer(client, connection.compact)))
    finally:
        client.close()


def devices(target: str, workers: int) -> tuple[str, ...]:
    """Returns the device of each worker (cpu, cuda:0, …). Raises MissingError if there is no GPU, UsageError if there
    is no worker."""
    if workers < 1:
        raise UsageError(f"{workers} workers", "use --workers 1 or more")
    if target == "cpu":
        return ("cpu",) * workers
    count = len(cuda.gpus())
    if not count:
        raise MissingError("no NVIDIA GPU was found", "use --target cpu, or check nvidia-smi")
    return tuple(f"cuda:{number % count}" for number in range(workers))
