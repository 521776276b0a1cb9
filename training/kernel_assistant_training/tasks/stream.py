"""All candidates of a run in order: crawled, asked of a model, composed. Numbers tell them apart."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain, count
from random import Random

from kernel_assistant_training.tasks.compose import chainable, composed
from kernel_assistant_training.tasks.crawl import Unbuilt, catalog, text_of
from kernel_assistant_training.tasks.records import TaskText

#: First numbers of a source; crawled ones begin with 0.
COMPOSED, ASKED = 1 << 24, 1 << 25


@dataclass(frozen=True)
class Source:
    """What all texts follow from. `blocks` of transformers' classes (-1: all), `variants` texts of a crawled
    operator."""

    seed: int
    target: str
    blocks: int
    variants: int


class Texts:
    """The text of each number of a source."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.operators = catalog(source.blocks, source.seed)
        self._chainable = chainable(self.operators)

    def numbers(self, done: Collection[int] = ()) -> Iterator[int]:
        """Endless: all operators once before any is there twice, then compositions. Without those that are `done`."""
        every = chain(range(len(self.operators) * self._source.variants), count(COMPOSED))
        return (number for number in every if number not in done)

    def of(self, number: int) -> TaskText | Unbuilt | None:
        """None where no operator fitted what was there."""
        source = self._source
        if number >= COMPOSED:
            return composed(self._chainable, number, source.seed, source.target)
        variant, place = divmod(number, len(self.operators))
        operator = self.operators[place]
        return text_of(operator, number, Random(f"crawl {source.seed} {operator.name} {variant}"), source.target)
