"""All candidates of a run in order: crawled, asked of a model, composed. Numbers tell them apart."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import count

from kernel_assistant_training.tasks.compose import chainable, composed
from kernel_assistant_training.tasks.crawl import Unbuilt, crawled
from kernel_assistant_training.tasks.operators import Operator
from kernel_assistant_training.tasks.records import TaskText

#: First numbers of a source; crawled ones begin with 0.
COMPOSED, ASKED = 1 << 24, 1 << 25


def candidates(
    operators: list[Operator],
    seed: int,
    target: str,
    variants: int,
    *,
    done: Collection[int] = (),
    unbuilt: Callable[[Unbuilt], None] = lambda one: None,
    unfit: Callable[[], None] = lambda: None,
) -> Iterator[TaskText]:
    """Endless. Without the numbers that are `done`; `unbuilt` and `unfit` are told of what no text came of."""
    for one in crawled(operators, seed, target, variants):
        if isinstance(one, Unbuilt):
            unbuilt(one)
        elif one.number not in done:
            yield one
    those = chainable(operators)
    for number in count():
        if COMPOSED + number in done:
            continue
        found = composed(those, COMPOSED + number, seed, target)
        if found is None:
            unfit()
        else:
            yield found
