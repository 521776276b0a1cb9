"""Writes an hour of a job as its host would: 10,000 events in the log, and the ended job in the store. Nothing is
run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernel_assistant import events
from kernel_assistant.config import Settings
from kernel_assistant.records import Evaluation, JobOutcome, Outcome, Stage, Tier, Timing
from kernel_assistant.records.evaluation import Diagnostic
from kernel_assistant.session.hosting.event_log import EventLog
from kernel_assistant.source.build import build_task
from kernel_assistant.store import JobOptions, JobState, Store
from tests.common.results import accuracy_of, result

_EAGER_MS, _COMPILE_MS = 0.906, 0.212


def write_long_job(settings: Settings, module: Path, count: int) -> str:
    """Adds a job with `count` events for the first class of `module`; returns its number."""
    store = Store(settings.state_dir)
    task = build_task(str(module), target="cpu", numerics="kernelbench")
    job = store.add_job(task, JobOptions(), "cpu:0").id
    store.mark_running(job)
    folder = settings.jobs_dir / job
    folder.mkdir(parents=True)
    log = EventLog(folder / "events.jsonl", job)
    for event in _beginning(task.name):
        log.append(event)
    for turn in range(1, count + 1 - 5):
        log.append(_middle(turn))
    outcome = JobOutcome.no_measurable_gain
    report = result(task=task.name, outcome=outcome, evaluations=count, seconds=3600.0, artifacts={"job": job})
    log.append(events.JobFinished(result=report))
    store.mark_ended(job, JobState.done, result=report)
    store.close()
    return job


def _beginning(task: str) -> tuple[events.AnyEvent, ...]:
    return (
        events.JobQueued(task=task, target="cpu"),
        events.JobStarted(device="cpu:0"),
        events.TaskOpened(graph="%0 = sigmoid(%x0)", nodes=6),
        events.BaselineMeasured(eager_ms=_EAGER_MS, compile_ms=_COMPILE_MS, floor_ms=0.05),
    )


def _middle(turn: int) -> events.AnyEvent:
    """Every tenth event is a message of the loop, every third of the others a compiler error, a few are
    improvements."""
    if turn % 500 == 0:
        gain = 1 + turn / 10_000
        gains = {"speedup_vs_eager": _EAGER_MS / _COMPILE_MS * gain, "speedup_vs_compile": gain}
        named = {"candidate": f"{turn:064x}", "schedule": f"rows tile={turn}"}
        return events.BestImproved(**named, **gains, candidate_ms=_COMPILE_MS / gain)
    if turn % 10 == 0:
        return events.Progress(phase="search", message=f"turn {turn}")
    return events.CandidateEvaluated(
        turn=turn, schedule=f"rows tile={turn}", origin="generator", evaluation=_evaluation(turn, broken=turn % 3 == 0)
    )


def _evaluation(turn: int, *, broken: bool) -> Evaluation:
    common: dict[str, Any] = {"candidate": f"{turn:064x}", "tier": Tier.quick}
    if broken:
        message = f"line {turn}: 'rows' was not declared in this scope"
        diagnostics = (Diagnostic(message=message, file="rows.cpp", line=turn),)
        kind = {"outcome": Outcome.compile_error, "stage": Stage.compile}
        return Evaluation(**common, **kind, message=message, diagnostics=diagnostics)
    taken = _COMPILE_MS * (1.3 - (turn % 97) / 200)
    times = {"candidate_ms": taken, "eager_ms": _EAGER_MS, "compile_ms": _COMPILE_MS, "floor_ms": 0.05}
    gains = {"speedup_vs_eager": _EAGER_MS / taken, "speedup_vs_compile": _COMPILE_MS / taken, "roofline": 0.05 / taken}
    kind = {"outcome": Outcome.correct, "stage": Stage.profile, "precision": "f32"}
    return Evaluation(**common, **kind, message="correct", accuracy=accuracy_of(), timing=Timing(**times, **gains))
