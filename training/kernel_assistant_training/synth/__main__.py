"""`python -m kernel_assistant_training.synth`: prints statistics of a stream of pairs of task and answer."""

from __future__ import annotations

import time
from collections import Counter
from itertools import islice

import click

from kernel_assistant_training.synth.conversations import Pair, drawn
from kernel_assistant_training.synth.features import features


@click.command()
@click.option("--target", type=click.Choice(["cpu", "cuda"]), required=True)
@click.option("--count", type=int, default=10_000, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
def main(target: str, count: int, seed: int) -> None:
    """Print how many tasks were drawn, left out and kept, and of which kinds, as Markdown tables."""
    yields, begun = Counter[str](), time.process_time()
    kept = list(islice(drawn(seed, target, yields), count))
    rate = count / (time.process_time() - begun)
    keys = Counter(pair.task.key() for pair in kept)
    click.echo(
        f"{count} pairs for {target}, seed {seed}: {rate:.0f} a second of one core, {len(keys)} canonical keys\n"
    )
    _table("stage", yields, yields["drawn"])
    _table("family", Counter(step.family for pair in kept for step in pair.steps), count)
    _table("structure", Counter(name for pair in kept for name in features(pair.graph)), count)
    _table("operator", _operators(kept), count)
    lengths = sorted(len(pair.source) for pair in kept)
    click.echo(f"characters of an answer: median {lengths[count // 2]}, nine tenths below {lengths[count * 9 // 10]}")


def _operators(kept: list[Pair]) -> Counter[str]:
    """Returns for each operator the number of pairs that contain it."""
    return Counter(name for pair in kept for name in {node.op.partition(".")[0] for node in pair.graph.nodes})


def _table(head: str, counts: Counter[str], whole: int) -> None:
    click.echo(f"| {head} | count | share |\n|---|---:|---:|")
    for name, number in counts.most_common():
        click.echo(f"| {name} | {number} | {number / whole:.1%} |")
    click.echo()


if __name__ == "__main__":
    main()
