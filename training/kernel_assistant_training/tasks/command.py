"""`python -m kernel_assistant_training synth`: tasks from installed packages and a language model; docs/tasks.md."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import click

from kernel_assistant.config import resolve
from kernel_assistant.errors import MissingError, UsageError
from kernel_assistant.policy.connect import connect
from kernel_assistant.targets import cuda
from kernel_assistant_training.episodes.lines import read_lines
from kernel_assistant_training.options.data import SynthArguments
from kernel_assistant_training.tasks.candidates.composer import Composer
from kernel_assistant_training.tasks.records import FilterResult, Reason
from kernel_assistant_training.tasks.stage import VERDICTS, SynthesisOptions, SynthesisSettings, synthesise

#: Seconds of probe time for a candidate, share of candidates that is kept, and bytes on disk for a candidate: what
#: --dry-run uses until the folder has figures of its own. Measured with eight processes on two cores (docs/tasks.md).
GUESS_SECONDS, GUESS_KEPT, GUESS_BYTES = 8.0, 0.5, 4000.0


def main(asked: SynthArguments) -> None:
    """Makes the tasks, or prints what that takes. Raises UsageError, MissingError."""
    if asked.dry_run:
        click.echo(estimate(asked.out, asked.count, asked.workers, asked.target))
        return
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
    """One device for each worker. Raises MissingError if there is no GPU, UsageError if there is no worker."""
    if workers < 1:
        raise UsageError(f"{workers} workers", "use --workers 1 or more")
    if target == "cpu":
        return ("cpu",) * workers
    count = len(cuda.gpus())
    if not count:
        raise MissingError("no NVIDIA GPU was found", "use --target cpu, or check nvidia-smi")
    return tuple(f"cuda:{number % count}" for number in range(workers))


def estimate(out: Path, count: int, workers: int, target: str) -> str:
    """The resources that `count` tasks would take, as text; computed from the folder's own results if it has at least
    50.
    """
    path = out / VERDICTS
    known = list(read_lines(path, FilterResult)) if path.is_file() else []
    kept = sum(one.reason is Reason.passed for one in known)
    measured = len(known) >= 50 and kept > 0
    share = kept / len(known) if measured else GUESS_KEPT
    each = sum(one.seconds for one in known) / len(known) if measured else GUESS_SECONDS
    size = path.stat().st_size / len(known) if measured else GUESS_BYTES
    left = max(0, count - kept)
    candidates = round(left / share)
    hours = candidates * each / workers / 3600
    gpus = min(workers, len(cuda.gpus())) if target == "cuda" else 0
    why = f"by {len(known)} verdicts of this folder" if measured else "by rough figures: the folder has none of its own"
    counted = Counter({"tasks there": kept, "tasks to make": left, "candidates to judge": candidates})
    lines = [f"{name}: {number}" for name, number in counted.items()]
    lines += [f"hours: {hours:.2f} with {workers} workers", f"GPU-hours: {hours * gpus:.2f}"]
    return "\n".join([*lines, f"disk: {1.3 * candidates * size / 1e6:.0f} MB", why])
