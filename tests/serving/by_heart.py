"""A whole episode of the compact profile that a tiny model learns by heart, for any machine.

The model writes a kernel and calls `evaluate`. After the observation that the kernel is right, it calls `finish`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from kernel_assistant.agent.prompts import compact_system
from kernel_assistant.records.transcript import Message
from kernel_assistant.serving.template import write_call
from tests.serving.tiny import Lesson, Size

SIZE = Size(context=1024, vocabulary=900)
STEPS = 160
_GRAPH = "x0 f32[B,D0]\nn0 = relu(x0)\nn1 = mul(n0, 2)\nreturn n1\nB=64 D0=128 {arch} f32"
SOURCE = """// launch: k0(x0, out0, n=B*D0)
#include "ka/pointwise.h"
extern "C" void k0(const k0_args* a) {
  ka::pointwise(a->n, [](float x0) { return ka_relu(x0) * 2.0f; }, a->out0, a->x0);
}
"""
ANSWER = f"```cpp\n{SOURCE}```\n{write_call('evaluate', '{}')}"
FINISH = write_call("finish", "{}")


def lessons() -> tuple[Lesson, ...]:
    """Both replies, each with several machines, and times in the report."""
    return tuple(lesson for seed in range(100) for lesson in _lessons(random.Random(seed)))


def _lessons(chance: random.Random) -> Iterator[Lesson]:
    task = _GRAPH.format(arch=chance.choice(("x86-64-avx512", "x86-64-v3", "aarch64")))
    asked = (Message(role="system", content=compact_system("cpu")), Message(role="user", content=task))
    yield Lesson(asked, ANSWER)
    told = f"ok {_ms(chance)} compile {_ms(chance)}" + chance.choice(("", f" floor {_ms(chance)}"))
    observed = Message(role="tool", content=told, tool_call_id="evaluate")
    yield Lesson((*asked, Message(role="assistant", content=ANSWER), observed), FINISH)


def _ms(chance: random.Random) -> str:
    return f"{10 ** chance.uniform(-3, 1):.3g}".removeprefix("0")
