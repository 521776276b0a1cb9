"""Defines the names of a canonical graph as constants at the top of a source. Pure.

    // bound: sizes and constants of the task
    #include "plan.h"
    constexpr int64_t D0 = 768;
    constexpr float C0 = 1e-05f;
    #line 1

Only names that the source uses are defined. After `#line 1` compilers count the source's own lines; `unbound` removes
the header.
"""

from __future__ import annotations

import re

from kernel_assistant.generator.emit import PARTS_MARK, SCHEDULE_MARK
from kernel_assistant.records.canonical import Canonical

#: The generator's text begins with one of these.
GENERATED = (PARTS_MARK, SCHEDULE_MARK)
#: Integers from here on have 64 bits in C.
WIDE = 1 << 31
_HEAD = "// bound: sizes and constants of the task"
_FIRST = "#line 1\n"
_WORD = re.compile(r"\b[CD]\d+\b")


def bound(source: str, task: Canonical) -> str:
    """Returns `source` below a header that defines the sizes and constants of `task` that it uses, so that it compiles
    without other files of the task."""
    used = set(_WORD.findall(source))
    lines = [_HEAD, '#include "plan.h"']
    # The generator's text gives sizes the type of a literal.
    narrow = {name: size for name, size in task.sizes.items() if source.startswith(GENERATED) and size < WIDE}
    for kind in ("int", "int64_t"):
        some = [
            f"{name} = {size}"
            for name, size in task.sizes.items()
            if name in used and (name in narrow) == (kind == "int")
        ]
        lines += [f"constexpr {kind} {', '.join(some)};"] if some else []
    kind, mark = ("double", "") if _has_doubles(task) else ("float", "f")
    constants = [f"{name} = {number!r}{mark}" for name, number in task.constants.items() if name in used]
    lines += [f"constexpr {kind} {', '.join(constants)};"] if constants else []
    return "\n".join(lines) + "\n" + _FIRST + source


def unbound(source: str) -> str:
    """Returns the source without the header that `bound` added; unchanged if there is none."""
    return source.partition(_FIRST)[2] if source.startswith(_HEAD) else source


def _has_doubles(task: Canonical) -> bool:
    specs = [value.spec for value in task.graph.inputs] + [node.spec for node in task.graph.nodes]
    return any(spec.dtype == "f64" for spec in specs)
