"""Traces compositions of operators without running them: graphs for training pairs, and for held-out tasks.

    python -m kernel_assistant_training.tasks.graphs FILE --seconds 600

FILE has JSON lines and is continued. Two processes need other `--first` numbers. The filter (`filter.py`) is not asked,
so values may be constant or not finite: pairs are not run, and a judge finds out. The package's file of graphs
(`synth/traced.py`) has these lines, sorted by number and packed by xz.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path

import click

from kernel_assistant.records.canonical import canonical
from kernel_assistant_training.episodes.lines import EpisodeFile, read_lines
from kernel_assistant_training.synth.digest_kernelbench import traces
from kernel_assistant_training.synth.split import Split, split_of
from kernel_assistant_training.synth.traced import TracedGraph
from kernel_assistant_training.tasks.records import TaskText
from kernel_assistant_training.tasks.stream import COMPOSED, StreamSource, Texts

#: Candidates after which living objects are no longer searched for garbage: most are torch's caches, which only grow.
FREEZE_EVERY = 50
#: Variants of each crawled operator, which come before the compositions.
VARIANTS = 4
KEPT: tuple[Split, ...] = ("train", "held_out")


def traced(texts: Texts, numbers: Iterator[int], until: float) -> Iterator[TracedGraph]:
    """Yields the graphs of the candidates with these numbers that can be traced, in their order, until `until` on the
    monotonic clock. A canonical graph comes once; KernelBench's and withheld operators are left out."""
    seen = set[str]()
    for number in numbers:
        if time.monotonic() >= until:
            return
        if number % FREEZE_EVERY == 0:
            gc.collect()
            gc.freeze()
        text = texts.of(number)
        if not isinstance(text, TaskText):
            continue
        try:
            graph = next(traces(text.text, "task"))
            key = canonical(graph).key()
            split = split_of(graph, key)
        except Exception:  # noqa: BLE001 - whatever PyTorch says to a composition, the next one is tried
            continue
        if key not in seen and split in KEPT:
            seen.add(key)
            kept = text.text if split == "held_out" else ""
            yield TracedGraph(number=number, split=split, operators=text.operators, graph=graph, text=kept)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--seconds", default=600.0, show_default=True, help="Seconds after which it ends.")
@click.option("--first", default=0, help="First composition, counted from 0; operators alone come before the first.")
@click.option("--seed", default=7, show_default=True, help="Seed of the stream.")
def main(file: Path, seconds: float, first: int, seed: int) -> None:
    """Write graphs of composed tasks to FILE."""
    until = time.monotonic() + seconds
    texts = Texts(StreamSource(seed, "cpu", blocks=0, variants=VARIANTS))
    done = max((one.number for one in read_lines(file, TracedGraph)), default=-1) if file.is_file() else -1
    begin = max(done + 1, COMPOSED + first if first else 0)
    lines, kept = EpisodeFile(file), 0
    for one in traced(texts, (number for number in texts.numbers() if number >= begin), until):
        lines.add(one)
        kept += 1
    lines.close()
    click.echo(f"{kept} graphs more in {file}")


if __name__ == "__main__":
    main()
