"""What is known of a class: its newest job, what is applied, whether either is of another text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernel_assistant.apply.applied import is_same_class
from kernel_assistant.records import JobOutcome, OptimizeResult
from kernel_assistant.store import JobKind, JobRow, JobState


@dataclass(frozen=True)
class ClassState:
    """`figure` is the confirmed gain in words; `stale` says why a result or the kernels are of another text.

    `kernel_calls` and `fallbacks` (reason → calls) are what the last program reported of the guard, None without one.
    """

    job: str = ""
    state: str = ""
    outcome: str = ""
    figure: str = ""
    message: str = ""
    stale: str = ""
    applied: bool = False
    kernel_calls: int | None = None
    fallbacks: dict[str, int] = field(default_factory=dict)

    @property
    def improved(self) -> bool:
        return self.outcome == JobOutcome.improved.value


def newest_jobs(rows: Iterable[JobRow]) -> dict[str, JobRow]:
    """Class → the newest job of `rows` (newest first) that looked for kernels and was not given up by the user."""
    found: dict[str, JobRow] = {}
    for row in rows:
        if row.options.kind is JobKind.optimize and row.state is not JobState.cancelled:
            found.setdefault(row.task.class_name, row)
    return found


def of_job(row: JobRow, text: str) -> ClassState:
    """What a job says of its class in `text`."""
    result = row.result
    return ClassState(
        job=row.id,
        state=row.state.value,
        outcome=result.outcome.value if result is not None else "",
        figure=figure(result),
        message=row.error,
        stale=_stale(row, text) if result is not None else "",
    )


def figure(result: OptimizeResult | None) -> str:
    """`2.1× vs torch.compile`; "" where nothing was confirmed."""
    best = None if result is None else result.best
    if best is None:
        return ""
    return gain(best.speedup_vs_compile, best.speedup_vs_eager)


def gain(vs_compile: float | None, vs_eager: float) -> str:
    return f"{vs_eager:.1f}× vs eager" if vs_compile is None else f"{vs_compile:.1f}× vs torch.compile"


def applied_figure(provenance: Mapping[str, Any]) -> str:
    """What was measured for an applied class, by its package."""
    timing = (provenance.get("numbers") or {}).get("timing") or {}
    eager = timing.get("speedup_vs_eager")
    return gain(timing.get("speedup_vs_compile"), eager) if isinstance(eager, (int, float)) else ""


def _stale(row: JobRow, text: str) -> str:
    name = row.task.class_name
    return "" if is_same_class(text, row.task.content, name) else f"{name} was edited since job {row.id}"
