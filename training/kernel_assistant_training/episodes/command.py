"""`kernel-assistant train episodes`: plays lessons in the real environment and stores the conversations."""

from __future__ import annotations

import json

import click

from kernel_assistant_training.episodes.run import run
from kernel_assistant_training.options.data import EpisodesArguments


def main(asked: EpisodesArguments) -> None:
    """Prints the summary of the run."""
    click.echo(json.dumps(run(asked), indent=2))
