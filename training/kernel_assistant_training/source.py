"""Where conversations come from: a function of a seed that another process can be given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random

from kernel_assistant.records.transcript import Message
from kernel_assistant_training.synth.mistakes import Mistakes
from kernel_assistant_training.synth.narrow import Narrow

#: A seed → conversations without end. It is pickled: a function of a module, or a `partial` of one.
Source = Callable[[int], Iterator[list[Message]]]
TARGETS = ("cuda", "cpu")
#: How often a conversation of stages 0 and 1 asks for a task, not for a kernel.
COMPOSE_SHARE = 0.03


def pairs_of(target: str, narrow: Narrow | None = None, mistakes: Mistakes | None = None) -> Source:
    """Un-run pairs of train tasks."""
    from kernel_assistant_training.synth import pairs

    return partial(pairs, target=target, narrow=narrow, mistakes=mistakes)


def training_sources(
    compose_share: float = COMPOSE_SHARE,
    targets: Sequence[str] = TARGETS,
    narrow: Narrow | None = None,
    mistakes: Mistakes | None = None,
) -> tuple[Source, ...]:
    """Pairs of each target, a share of the conversations of each being compositions."""
    from kernel_assistant_training.synth.composing import compositions

    most = [pairs_of(target, narrow, mistakes) for target in targets]
    return tuple(
        partial(mixed, most=one, rest=compositions, share=compose_share, part=part) for part, one in enumerate(most)
    )


def mixed(seed: int, *, most: Source, rest: Source, share: float, part: int) -> Iterator[list[Message]]:
    """Conversations of `most`; `share` of all are from `rest`. `part` tells sources apart that are given one seed."""
    random, common, rare = Random(f"mixed {seed} {part}"), most(seed), rest(seed * len(TARGETS) + part)
    while True:
        yield next(rare if random.random() < share else common)
