"""What the applied packages beside a file say of its classes: served, stale, how often the guard let calls through."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from kernel_assistant.apply import AppliedClass, find_applied
from kernel_assistant.apply.applied import report_name, staleness
from kernel_assistant.apply.edit import LOADER
from kernel_assistant.apply.package import package_name
from kernel_assistant.apply.takeback import decorated_classes
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.session.class_state import ClassState, applied_figure, newest_jobs, of_job
from kernel_assistant.store import JobRow


def states_of(path: Path, text: str, rows: Iterable[JobRow], counters_dir: Path) -> dict[str, ClassState] | None:
    """Class → what is known of it, by the jobs of its file (newest first) and the package beside it.

    None where `text` is not Python at the moment: what was known before stands.
    """
    try:
        # Parsing a long file takes longer than looking for what the decorator has to say.
        decorated = decorated_classes(text) if LOADER in text else []
    except (SyntaxError, ValueError):
        return None
    states = {name: of_job(row, text) for name, row in newest_jobs(rows).items()}
    for name, one in _applied(path, decorated).items():
        states[name] = _with_kernels(states.get(name, ClassState()), one, text, counters_dir)
    return states


def _applied(path: Path, decorated: list[str]) -> dict[str, AppliedClass | None]:
    """Decorated class → its package, None where that is missing or cannot be read."""
    found: dict[str, AppliedClass | None] = dict.fromkeys(decorated)
    if decorated and (path.parent / package_name(path.stem)).is_dir():
        try:
            for one in find_applied([path]):
                if one.class_name in found and found[one.class_name] is None:
                    found[one.class_name] = one
        except KernelAssistantError:
            pass  # the lens says that the kernels cannot be read
    return found


def _with_kernels(state: ClassState, one: AppliedClass | None, text: str, counters_dir: Path) -> ClassState:
    if one is None:
        return replace(state, applied=True, stale="its kernels cannot be read; the original runs")
    calls, fallbacks = counted(counters_dir, one.package, one.class_name)
    return replace(
        state,
        applied=True,
        figure=applied_figure(one.provenance) or state.figure,
        stale=staleness(one, text),
        kernel_calls=calls,
        fallbacks=fallbacks,
    )


def counted(counters_dir: Path, package: Path, class_name: str) -> tuple[int | None, dict[str, int]]:
    """Calls that the kernels served and that fell back in the last program that reported; (None, {}) without one."""
    try:
        found = json.loads((counters_dir / report_name(package)).read_bytes())["classes"][class_name]
        fallbacks = {str(reason): int(count) for reason, count in found["fallbacks"].items()}
        return int(found["kernel"]), fallbacks
    except (OSError, ValueError, KeyError, TypeError):
        return None, {}
