"""A source of conversations with three words to learn, for processes that tests start."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random
from threading import Event

from kernel_assistant.records.transcript import Message


def sums(seed: int) -> Iterator[list[Message]]:
    """The answer is the task's operator between its operands."""
    random = Random(seed)
    while True:
        op = random.choice(("add", "mul", "sub"))
        size = random.choice((64, 768, 1000))
        yield [
            Message(role="system", content="C++."),
            Message(role="user", content=f"x0 [B,D0]\nn0 = {op}(x0, C0)\nD0={size}"),
            Message(role="assistant", content=f"```cpp\n{op}(v, C0);\n```\n"),
        ]


def few(seed: int) -> Iterator[list[Message]]:
    """Two hundred conversations, and then none while the process lives."""
    yield from islice(sums(seed), 200)
    Event().wait()


def ends_if_even(seed: int) -> Iterator[list[Message]]:
    """One conversation and no more for even seeds, which the first process has."""
    yield from sums(seed) if seed % 2 else islice(sums(seed), 1)
