"""A source of conversations with three words to learn, for processes that tests start."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random
from threading import Event

from kernel_assistant.records.transcript import Message


def sums(seed: int) -> Iterator[list[Message]]:
    """Conversations in which the answer is the task's operator between its operands."""
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
    """Two hundred conversations; after them the process stays and gives none."""
    yield from islice(sums(seed), 200)
    Event().wait()


def ends_if_even(seed: int) -> Iterator[list[Message]]:
    """One conversation for even seeds, then the source ends; the first process has an even seed."""
    yield from sums(seed) if seed % 2 else islice(sums(seed), 1)
