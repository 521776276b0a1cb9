"""The stream of all candidates of a run. Each is one operator of a package ("crawled"), composed by a model or composed
of operators, and has a unique number."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain, count
from random import Random

from kernel_assistant_training.tasks.candidates.compose import chainable, composed
from kernel_assistant_training.tasks.candidates.crawl import Unbuilt, catalog, text_of
from kernel_assistant_training.tasks.records import TaskText

#: The first number of each source; crawled tasks begin with 0.
COMPOSED, ASKED = 1 << 24, 1 << 25


@dataclass(frozen=True)
class StreamSource:
    """The settings that determine all sources of a stream. `blocks` is the number of modules of transformers (-1: all),
    `variants` the number of sources for each operator of a package."""

    seed: int
    target: str
    blocks: int
    variants: int


class Texts:
    """Writes the source of the candidate for each number of a stream."""

    def __init__(self, source: StreamSource) -> None:
        self._source = source
        self.operators = catalog(source.blocks, source.seed)
        self._chainable = chainable(self.operators)

    def numbers(self, done: Collection[int] = ()) -> Iterator[int]:
        """Returns the numbers of candidates, without end: each operator once, then again for each further variant, then
        compositions. Numbers in `done` are left out."""
        every = chain(range(len(self.operators) * self._source.variants), count(COMPOSED))
        return (number for number in every if number not in done)

    def of(self, number: int) -> TaskText | Unbuilt | None:
        """Returns the candidate with this number. If there is none, returns an Unbuilt with the reason for a crawled
        operator, None for a composition."""
        source = self._source
        if number >= COMPOSED:
            return composed(self._chainable, number, source.seed, source.target)
        variant, index = divmod(number, len(self.operators))
        operator = self.operators[index]
        return text_of(operator, number, Random(f"crawl {source.seed} {operator.name} {variant}"), source.target)
