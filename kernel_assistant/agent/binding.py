"""The names of a canonical graph as constants in front of a source. Pure.

    // bound: sizes and constants of the task
    #include "plan.h"
    constexpr int64_t D0 = 768;
    constexpr float C0 = 1e-05f;
    #line 1

Only names that occur are there. The compiler counts from what follows; `unbound` takes it away again.
"""

from __future__ import annotations

import re

from kernel_assistant.records.canonical import Canonical

_HEAD = "// bound: sizes and constants of the task"
_FIRST = "#line 1\n"
_WORD = re.compile(r"\b[CD]\d+\b")


def bound(source: str, task: Canonical) -> str:
    """A source that stands for itself."""
    used = set(_WORD.findall(source))
    lines = [_HEAD, '#include "plan.h"']
    sizes = [f"{name} = {size}" for name, size in task.sizes.items() if name in used]
    lines += [f"constexpr int64_t {', '.join(sizes)};"] if sizes else []
    kind, mark = ("double", "") if _has_doubles(task) else ("float", "f")
    constants = [f"{name} = {number!r}{mark}" for name, number in task.constants.items() if name in used]
    lines += [f"constexpr {kind} {', '.join(constants)};"] if constants else []
    return "\n".join(lines) + "\n" + _FIRST + source


def unbound(source: str) -> str:
    """The source as it was written; one that was not bound stays."""
    return source.partition(_FIRST)[2] if source.startswith(_HEAD) else source


def _has_doubles(task: Canonical) -> bool:
    specs = [value.spec for value in task.graph.inputs] + [node.spec for node in task.graph.nodes]
    return any(spec.dtype == "f64" for spec in specs)
