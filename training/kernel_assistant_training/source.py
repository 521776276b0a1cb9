"""Where conversations come from: a function of a seed that another process can be given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from kernel_assistant.records.transcript import Message

#: A seed → conversations without end. It is pickled: a function of a module, or a `partial` of one.
Source = Callable[[int], Iterator[list[Message]]]
TARGETS = ("cuda", "cpu")


def pairs_of(target: str) -> Source:
    """Un-run pairs of train tasks."""
    from kernel_assistant_training.synth import pairs

    return partial(pairs, target=target)
