"""Writes a plan and its kernels as one text: parts, schedule, plan, kernels. `agent/directives.py` reads it back.

    // schedule: pointwise block=256 vec=4
    // launch: k0(x0, out0) grid=cdiv(D0, 1024) block=256
    #include "plan.h"
    …

Sizes and numbers have the names of the canonical graph: tasks that differ only in them have the same text if the
generator makes the same decisions for both.
"""

from __future__ import annotations

import re
from functools import partial
from itertools import takewhile

from kernel_assistant.generator.ir.named import NAMED_SIZE
from kernel_assistant.records import BufferSpec, Launch, Plan

_TYPE = re.compile(r"\((?:int|int64_t)\)")


def written(plan: Plan, source: str) -> str:
    """Returns `source` with the lines of the plan inserted behind its first comment lines, which begin with `// parts:`
    and `// schedule:`."""
    kernels = source.split("\n")
    lines = list(takewhile(lambda line: line.startswith("//"), kernels))
    kernels = kernels[len(lines) :]
    for word, buffers in (("scratch", plan.scratch), ("packed", plan.packed)):
        lines += [f"// {word}: " + "; ".join(map(_buffer, buffers))] if buffers else []
    lines += map(partial(_launch, "prepare"), plan.prepare)
    lines += map(partial(_launch, "launch"), plan.launches)
    return "\n".join([*lines, *kernels])


def _buffer(spec: BufferSpec) -> str:
    return f"{spec.name} {spec.dtype}[{', '.join(map(_expression, spec.shape))}]"


def _expression(size: str) -> str:
    """Returns a size as the text of the plan shows it: names without values, no casts, and `//` for C's integer
    division `/`."""
    return re.sub(r" //? ", " // ", _TYPE.sub("", NAMED_SIZE.sub(r"\1", size)))


def _launch(word: str, launch: Launch) -> str:
    given = [(field, _expression(value)) for field, value in launch.args]
    args = ", ".join(field if field == value else f"{field}={value}" for field, value in given)
    if launch.call is not None:
        return f"// call: {launch.call.call.name}({args})"
    if launch.library:
        return " ".join(
            [f"// library: {launch.library}({args})", *(f"{name}={value}" for name, value in launch.settings)]
        )
    words = [f"// {word}: {launch.symbol}({args})"]
    for name, value, usual in (
        ("grid", _three(launch.grid), "1"),
        ("block", _three(launch.block), "1"),
        ("shared", _expression(launch.shared), "0"),
    ):
        words += [f"{name}={value}"] if value != usual else []
    return " ".join(words)


def _three(sizes: tuple[str, str, str]) -> str:
    """Returns the sizes x, y and z of a grid or block as text, without ones at the end: `(4, 2)` for (4, 2, 1)."""
    x, y, z = map(_expression, sizes)
    if z != "1":
        return f"({x}, {y}, {z})"
    return f"({x}, {y})" if y != "1" else x
