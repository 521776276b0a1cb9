"""The rules that find hints. Each has a file with `CODE`, `NAME` and `find(method) -> Iterator[RuleHint]`
(docs/diagnostics.md)."""

from __future__ import annotations

from kernel_assistant.source.lint.rules import (
    full_precision,
    growing,
    host_sync,
    launch_bound,
    layout,
    pointwise,
    python_loop,
)
from kernel_assistant.source.lint.rules.base import Method, Rule

RULES: tuple[Rule, ...] = tuple(
    Rule(module.CODE, module.NAME, module.find)
    for module in (full_precision, pointwise, python_loop, growing, host_sync, launch_bound, layout)
)

__all__ = ["RULES", "Method", "Rule"]
