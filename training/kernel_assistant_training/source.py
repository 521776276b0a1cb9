"""Sources of conversations. A source is a function from a seed to an endless stream; it can be passed to another
process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random

from kernel_assistant.errors import UsageError
from kernel_assistant.records.transcript import Message
from kernel_assistant_training.synth.mistakes import FaultRates
from kernel_assistant_training.synth.narrow import Narrow

#: A function of a seed that returns an endless stream of conversations. It is pickled, so it is a module's function or
#: a `partial` of one.
Source = Callable[[int], Iterator[list[Message]]]
TARGETS = ("cuda", "cpu")
#: The share of the conversations of stages 0 and 1 that ask for a task instead of a kernel.
COMPOSE_SHARE = 0.03
#: The share of their other conversations whose tasks were traced from compositions of PyTorch's operators.
TRACED_SHARE = 0.4


def pairs_of(
    target: str,
    narrow: Narrow | None = None,
    mistakes: FaultRates | None = None,
    *,
    continued: bool = False,
    traced_share: float = TRACED_SHARE,
) -> Source:
    """Returns a source of conversations, each with a training task and an answer that was not run. `continued`: for a
    model that was trained before. `traced_share` is the share of tasks that were traced from PyTorch's operators."""
    from kernel_assistant_training.synth import pairs

    return partial(
        pairs, target=target, narrow=narrow, mistakes=mistakes, continued=continued, traced_share=traced_share
    )


def training_sources(
    compose_share: float = COMPOSE_SHARE,
    targets: Sequence[str] = TARGETS,
    narrow: Narrow | None = None,
    mistakes: FaultRates | None = None,
    *,
    continued: bool = False,
    traced_share: float = TRACED_SHARE,
) -> tuple[Source, ...]:
    """Returns one source for each target: mostly pairs of a task and a kernel, and a share `compose_share` of
    conversations that ask for a task. `continued` and `traced_share` are as in `pairs_of`. Raises UsageError if
    `traced_share` is no share below 1."""
    from kernel_assistant_training.synth.composing import compositions

    if not 0 <= traced_share < 1:
        raise UsageError(f"--traced-share {traced_share:g} is no share below 1", "use a number such as 0.4")
    most = [pairs_of(target, narrow, mistakes, continued=continued, traced_share=traced_share) for target in targets]
    return tuple(
        partial(mixed, most=one, rest=compositions, share=compose_share, part=part) for part, one in enumerate(most)
    )


def mixed(seed: int, *, most: Source, rest: Source, share: float, part: int) -> Iterator[list[Message]]:
    """Yields conversations of the source `most`, mixed with the fraction `share` of conversations of the source `rest`.
    `part` makes mixtures with the same seed differ."""
    random, common, rare = Random(f"mixed {seed} {part}"), most(seed), rest(seed * len(TARGETS) + part)
    while True:
        yield next(rare if random.random() < share else common)
