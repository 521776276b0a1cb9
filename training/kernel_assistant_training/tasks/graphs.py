"""Traces PyTorch's operators and their compositions without running them: graphs for training pairs, and for held-out
tasks.

    python -m kernel_assistant_training.tasks.graphs FILE --seconds 600     # JSON lines; FILE is continued
    python -m kernel_assistant_training.tasks.graphs --pack FILE ...        # makes the package's file (synth/traced/)

Several processes write files of their own, with other `--first` numbers. The filter (`filter.py`) is not asked, so
values may be constant or not finite: pairs are not run, and a judge finds out.
"""

from __future__ import annotations

import gc
import lzma
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import click
import msgspec
import torch
from msgspec.structs import replace

from kernel_assistant.records import OpGraph
from kernel_assistant.records.canonical import canonical
from kernel_assistant_training.episodes.lines import EpisodeFile, read_lines
from kernel_assistant_training.synth.digest_kernelbench import trace_source
from kernel_assistant_training.synth.memory import largest
from kernel_assistant_training.synth.split import Split, split_of
from kernel_assistant_training.synth.traced.graphs import FILE, TracedGraph
from kernel_assistant_training.tasks.records import TaskText
from kernel_assistant_training.tasks.stream import COMPOSED, StreamSource, Texts

#: Candidates after which living objects are no longer searched for garbage: most are torch's caches, which only grow.
FREEZE_EVERY = 50
#: Variants of each crawled operator, which come before the compositions.
VARIANTS = 4
KEPT: tuple[Split, ...] = ("train", "held_out")


class DrawsRandomNumbersError(Exception):
    """The graph draws random numbers."""


def traced(texts: Texts, numbers: Iterable[int], until: float, seen: Collection[str] = ()) -> Iterator[TracedGraph]:
    """Yields the graphs of the candidates with these numbers that can be traced in eval mode, in their order, until
    `until` on the monotonic clock. Left out are graphs that compute nothing or draw random numbers, those with a size
    that is no product of numbers and the batch size, KernelBench's and withheld operators, and canonical graphs that
    came before or whose key is in `seen`."""
    known = set(seen)
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
            graph = graph_of(text.text)
            largest(replace(graph, dims={"B": 1}))  # raises KeyError if no batch size can be fitted
            key = canonical(graph).key()
            split = split_of(graph, key)
        except Exception:  # noqa: BLE001 - whatever PyTorch says to a composition, the next one is tried
            continue
        if key not in known and split in KEPT and graph.nodes:
            known.add(key)
            kept = text.text if split == "held_out" else ""
            yield TracedGraph(number=number, split=split, operators=text.operators, graph=graph, text=kept)


def graph_of(text: str) -> OpGraph:
    """Returns the graph of the module in a source, as the worker traces it: in eval mode (`trace_source`). Raises what
    PyTorch raises, and DrawsRandomNumbersError."""
    graph, _ = trace_source(text, "task", training=False)
    if any(_is_random(node.op) for node in graph.nodes):
        raise DrawsRandomNumbersError
    return graph


def _is_random(op: str) -> bool:
    name, _, overload = op.partition(".")
    packet = getattr(torch.ops.aten, name, None)
    return packet is not None and torch.Tag.nondeterministic_seeded in getattr(packet, overload or "default").tags


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--seconds", default=600.0, show_default=True, help="Seconds after which it ends.")
@click.option("--first", default=0, help="First composition, counted from 0; operators alone come before the first.")
@click.option("--seed", default=7, show_default=True, help="Seed of the stream.")
@click.option("--pack", is_flag=True, help="Merge FILES into the package's file instead.")
def main(files: tuple[Path, ...], seconds: float, first: int, seed: int, pack: bool) -> None:
    """Write graphs of PyTorch's operators to a file."""
    if pack:
        click.echo(f"{_packed(files)} graphs in {FILE}")
        return
    until = time.monotonic() + seconds
    texts = Texts(StreamSource(seed, "cpu", blocks=0, variants=VARIANTS))
    before = list(read_lines(files[0], TracedGraph)) if files[0].is_file() else []
    begin = max(max((one.number for one in before), default=-1) + 1, COMPOSED + first if first else 0)
    seen = {canonical(one.graph).key() for one in before}
    lines, kept = EpisodeFile(files[0]), 0
    for one in traced(texts, (number for number in texts.numbers() if number >= begin), until, seen):
        lines.add(one)
        kept += 1
    lines.close()
    click.echo(f"{kept} graphs more in {files[0]}")


def _packed(files: Collection[Path]) -> int:
    """Writes the graphs of `files` to the package's file, each canonical graph once, sorted by number. Returns their
    count."""
    by_key: dict[str, TracedGraph] = {}
    for one in sorted((one for file in files for one in read_lines(file, TracedGraph)), key=lambda one: one.number):
        by_key.setdefault(canonical(one.graph).key(), one)
    lines = msgspec.json.Encoder().encode_lines(list(by_key.values()))
    FILE.write_bytes(lzma.compress(lines, preset=9 | lzma.PRESET_EXTREME))
    return len(by_key)


if __name__ == "__main__":
    main()
