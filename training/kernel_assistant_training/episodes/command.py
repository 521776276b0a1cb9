"""`kernel-assistant train episodes`: plays lessons in the real environment and stores the conversations."""

from __future__ import annotations

import json
import time

import click

from kernel_assistant.config import resolve
from kernel_assistant_training.episodes.options import EpisodeOptions
from kernel_assistant_training.episodes.run import run
from kernel_assistant_training.nominal import unbounded
from kernel_assistant_training.options.data import EpisodesArguments
from kernel_assistant_training.synth.narrow import Narrow


def main(asked: EpisodesArguments) -> None:
    """Prints the summary of the run."""
    options = EpisodeOptions(
        target=asked.target,
        out=asked.out,
        seed=asked.seed,
        until=time.monotonic() + asked.seconds,
        python=asked.python,
        cache=unbounded(asked.target, asked.out) if asked.clock == "nominal" else resolve()[0].cache_dir,
        parts=asked.processes,
        builders=asked.builders,
        faults=asked.faults,
        estimated_compile=asked.estimated_compile,
        in_full=asked.in_full,
        lessons=asked.lessons,
        tasks=asked.tasks,
        narrow=Narrow.of(asked.only, asked.level),
        clock=asked.clock,
    )
    click.echo(json.dumps(run(options, asked.cores), indent=2))
