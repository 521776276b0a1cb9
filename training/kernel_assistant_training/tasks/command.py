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
from kernel_assistant_training.endings import invoke
from kernel_assistant_training.episodes.lines import read_lines
from kernel_assistant_training.tasks.composer import Composer
from kernel_assistant_training.tasks.filter import WINDOWS
from kernel_assistant_training.tasks.records import Reason, Verdict
from kernel_assistant_training.tasks.stage import VERDICTS, Asked, Options, synthesise

#: Seconds of a probe for a candidate, share that is kept, bytes of disk a candidate: what --dry-run says before the
#: folder has figures of its own. Measured on two cores that eight processes wanted (docs/tasks.md).
GUESS_SECONDS, GUESS_KEPT, GUESS_BYTES = 8.0, 0.5, 4000.0


@click.command()
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder; is continued.")
@click.option("--count", type=int, default=6000, show_default=True, help="Tasks that are kept.")
@click.option("--target", type=click.Choice(["cpu", "cuda"]), required=True)
@click.option("--recipe", type=click.Choice(sorted(WINDOWS)), default="base", show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--blocks", type=int, default=60, show_default=True, help="Classes of transformers; -1: all.")
@click.option("--variants", type=int, default=2, show_default=True, help="Texts of a crawled operator.")
@click.option("--compile", "backend", type=click.Choice(["inductor", "aot_eager"]), default="inductor")
@click.option("--workers", type=int, default=1, show_default=True, help="Probes; GPUs in turn.")
@click.option("--most", type=int, default=1 << 62, help="Candidates, after which it ends anyway.")
@click.option("--seconds", type=float, default=float("inf"), help="After which no candidate begins.")
@click.option("--answers", type=int, default=0, help="Tasks to ask a language model for.")
@click.option("--endpoint", default="", help="URL of that model (OpenAI-compatible).")
@click.option("--model", default="", help="Its name there, or one that `models list` knows.")
@click.option("--sandbox", default="auto", show_default=True)
@click.option("--dry-run", is_flag=True, help="Say what it takes, and do nothing.")
def synth(
    out: Path,
    count: int,
    target: str,
    recipe: str,
    seed: int,
    blocks: int,
    variants: int,
    backend: str,
    workers: int,
    most: int,
    seconds: float,
    answers: int,
    endpoint: str,
    model: str,
    sandbox: str,
    dry_run: bool,
) -> None:
    """Make and filter tasks; shards and a data card lie in the folder afterwards."""
    if dry_run:
        click.echo(estimate(out, count, workers, target))
        return
    if answers and not (endpoint or model):
        raise UsageError("--answers without a model to ask", "name one: --endpoint URL, or --model NAME")
    asked = Asked(target, recipe, seed, blocks, variants, backend, answers)
    options = Options(out, asked, count, devices(target, workers), sandbox, most, time.monotonic() + seconds)
    if not answers:
        click.echo(synthesise(options))
        return
    connection = connect(resolve()[0], endpoint, model)
    client = connection.client(seed)
    try:
        click.echo(synthesise(options, Composer(client, connection.compact)))
    finally:
        client.close()


def main(words: list[str]) -> None:
    invoke(synth, words)


def devices(target: str, workers: int) -> tuple[str, ...]:
    """For each worker. Raises MissingError where there is no GPU, UsageError for no worker."""
    if workers < 1:
        raise UsageError(f"{workers} workers", "use --workers 1 or more")
    if target == "cpu":
        return ("cpu",) * workers
    found = len(cuda.gpus())
    if not found:
        raise MissingError("no NVIDIA GPU was found", "use --target cpu, or check nvidia-smi")
    return tuple(f"cuda:{number % found}" for number in range(workers))


def estimate(out: Path, count: int, workers: int, target: str) -> str:
    """What `count` tasks take, by the folder's own verdicts where it has 50 or more."""
    path = out / VERDICTS
    known = list(read_lines(path, Verdict)) if path.is_file() else []
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
