"""The state of a class: its newest job, its applied kernels, and whether these were made for an older text of the
class. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernel_assistant.apply.applied import is_same_class
from kernel_assistant.records import Offer, OptimizeResult
from kernel_assistant.records.evaluation import Gain, gain_of
from kernel_assistant.records.offer import OVER_EAGER
from kernel_assistant.session.kinds.outcome import is_unconfirmed
from kernel_assistant.store import JobKind, JobRow, JobState


@dataclass(frozen=True)
class ClassState:
    """The newest job of a class, and its applied kernels. `figure` is the confirmed gain in words; `stale` says why the
    result or the kernels belong to an older text of the class. `offers` and `gain_over` are those of the job's result.

    `unconfirmed` is a job whose best candidate was not measured in the full tier, or has an unclear verdict; "" if
    there is none. `offer` is the job that `apply FILE:CLASS` uses, which may be an older job; `offered` is its gain in
    words.

    `unused` is True if kernels of the class are beside the file but the file does not use them. `kernel_calls` and
    `fallbacks` (reason → calls) are the guard's counts in the last program; `kernel_calls` is None if no program
    reported any.
    """

    job: str = ""
    state: str = ""
    outcome: str = ""
    figure: str = ""
    message: str = ""
    stale: str = ""
    applied: bool = False
    unused: bool = False
    gain_over: str = ""
    offers: Offer = Offer.none
    unconfirmed: str = ""
    kernel_calls: int | None = None
    fallbacks: dict[str, int] = field(default_factory=dict)
    offer: str = ""
    offered: str = ""

    @property
    def is_active(self) -> bool:
        """Whether the newest job is queued or running, or was when the host died."""
        return self.state in (JobState.queued.value, JobState.running.value)

    @property
    def recommended(self) -> bool:
        return self.offers is Offer.recommended

    @property
    def applicable(self) -> bool:
        """Whether the result can be applied: it gains over all timed baselines, or over the one that the program
        runs."""
        return self.offers.applicable


def newest_jobs(rows: Iterable[JobRow]) -> dict[str, JobRow]:
    """Returns class → its newest search for kernels among `rows` (newest first). Jobs that the user cancelled before a
    gain was confirmed are skipped."""
    jobs: dict[str, JobRow] = {}
    for row in rows:
        given_up = row.state is JobState.cancelled and (row.result is None or not row.result.applicable)
        if row.options.kind is JobKind.optimize and not given_up:
            jobs.setdefault(row.task.class_name, row)
    return jobs


def unconfirmed_jobs(rows: Iterable[JobRow]) -> dict[str, str]:
    """Returns class → number of its newest search for kernels, for each class where another full measurement of this
    job's candidate may show a gain. `rows` are sorted newest first; cancelled jobs count too."""
    jobs: dict[str, str] = {}
    for row in rows:
        if row.options.kind is JobKind.optimize and row.result is not None:
            jobs.setdefault(row.task.class_name, row.id if is_unconfirmed(row.result) else "")
    return {name: job for name, job in jobs.items() if job}


def applicable_jobs(rows: Iterable[JobRow]) -> dict[str, JobRow]:
    """Returns class → the newest of `rows` (newest first) that ended with a gain. This is the job that `apply` uses."""
    jobs: dict[str, JobRow] = {}
    for row in rows:
        if row.result is not None and row.result.applicable:
            jobs.setdefault(row.task.class_name, row)
    return jobs


def of_job(row: JobRow, text: str) -> ClassState:
    """Returns the state of a class from one of its jobs and the file's current `text`. The fields about applied kernels
    keep their defaults."""
    result = row.result
    return ClassState(
        job=row.id,
        state=row.state.value,
        outcome=result.outcome.value if result is not None else "",
        figure=figure(result),
        message=row.error,
        stale=staleness_of(row, text) if result is not None else "",
        gain_over=result.gain_over if result is not None else "",
        offers=result.offered if result is not None else Offer.none,
    )


def figure(result: OptimizeResult | None) -> str:
    """Returns the gain of a result in words, such as `2.1× vs torch.compile`; "" if no gain was confirmed."""
    best = None if result is None else result.best
    if best is None or result is None:
        return ""
    if result.gain_over == OVER_EAGER:
        return over_eager_alone(best.speedup_vs_eager, result.vs_compile)
    name, speedup, _ = result.headline or (OVER_EAGER, best.speedup_vs_eager, None)
    return f"{speedup:.1f}× vs {name}"


def gain(vs_compile: float | None, vs_eager: float) -> str:
    return f"{vs_eager:.1f}× vs eager" if vs_compile is None else f"{vs_compile:.1f}× vs torch.compile"


def over_eager_alone(vs_eager: float, vs_compile: Gain) -> str:
    """Describes a gain over eager mode that is none over torch.compile: `2.1× vs eager, no gain vs torch.compile`."""
    others = {Gain.slower: "slower than torch.compile", Gain.unclear: "not clear vs torch.compile"}
    return f"{vs_eager:.1f}× vs eager, {others.get(vs_compile, 'no gain vs torch.compile')}"


def applied_figure(provenance: Mapping[str, Any]) -> str:
    """Returns the gain of an applied class in words, from the content of its `provenance.json`; "" if it has none."""
    timing = (provenance.get("numbers") or {}).get("timing") or {}
    eager = timing.get("speedup_vs_eager")
    if not isinstance(eager, (int, float)):
        return ""
    compiled, bounds = timing.get("speedup_vs_compile"), timing.get("speedup_vs_compile_ci")
    if not bounds and not timing.get("speedup_vs_eager_ci"):
        return "gain not confirmed"  # an estimate of the search, which has no interval
    verdict = gain_of(compiled, tuple(bounds) if bounds else None)
    known = verdict not in (Gain.faster, Gain.unknown)
    return over_eager_alone(eager, verdict) if known else gain(compiled, eager)


def staleness_of(row: JobRow, text: str) -> str:
    """Returns a message if the class in `text` differs from the one in the job, "" if it is the same."""
    name = row.task.class_name
    return "" if is_same_class(text, row.task.content, name) else f"{name} was edited since job {row.id}"
