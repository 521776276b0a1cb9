"""A source of conversations with three words to learn, for processes that tests start."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from kernel_assistant.records.transcript import Message


def sums(seed: int) -> Iterator[list[Message]]:
    """The answer is the task's operator between its operands."""
    random = Random(seed)
    while True:
        op = random.choice(("add", "mul", "sub"))
        size = random.choice((64, 768, 1000))
        yield [
            Message(role="system", content="Write C++ for the graph."),
            Message(role="user", content=f"x0 f32[B,D0]\nn0 = {op}(x0, C0)\nreturn n0\nB=32 D0={size} sm_90"),
            Message(role="assistant", content=f"```cpp\n// launch: k0(x0, out0, rows=B)\nx = ka::{op}(v, C0);\n```\n"),
        ]


def ends(seed: int) -> Iterator[list[Message]]:
    """One conversation, and no more."""
    yield next(sums(seed))
