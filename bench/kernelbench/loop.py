"""The product's own loop on an open problem, as a row."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.harness import Row
from kernel_assistant.agent.budget import Budget
from kernel_assistant.agent.loop import run_episode
from kernel_assistant.environment.job_clock import JobClock
from kernel_assistant.environment.session import Environment
from kernel_assistant.events import CandidateEvaluated
from kernel_assistant.policy.generator import GeneratorPolicy
from kernel_assistant.records import Baseline, Candidate, Evaluation, Trajectory
from kernel_assistant.records.evaluation import measurably_faster, measurably_slower


@dataclass(frozen=True)
class Best:
    """The best verified candidate of an episode."""

    candidate: Candidate
    evaluation: Evaluation


def run_loop(environment: Environment, seconds: float) -> Row:
    """The result of the generator policy in a budget of `seconds`."""
    return search(environment, seconds)[0]


def search(environment: Environment, seconds: float) -> tuple[Row, Best | None]:
    """The row of `run_loop`, and the best candidate if there is one. Waiting for other judges is no part of the
    budget."""
    policy, events, began = GeneratorPolicy(), list[Any](), time.monotonic()
    seconds_of = list[tuple[str, float]]()

    def emit(event: Any) -> None:
        events.append(event)
        seconds_of.append((type(event).__name__, round(time.monotonic() - began, 1)))

    reason = policy.supports(environment.graph, environment.device.target)
    if reason is not None:
        return {"outcome": "unsupported", "reason": reason}, None
    trajectory = run_episode(
        environment,
        policy,
        Budget(seconds=seconds),
        emit=emit,
        cancel=threading.Event(),
        clock=JobClock(now=lambda: time.monotonic() - environment.waited),
    )
    judged = [event for event in events if isinstance(event, CandidateEvaluated)]
    row = summary(trajectory, environment.baseline(compiled=True), judged) | {"events": seconds_of}
    return row, _best(trajectory)


def _best(trajectory: Trajectory) -> Best | None:
    candidates = {one.hash(): one for step in trajectory.steps for one in step.candidates}
    if trajectory.best is None or trajectory.final is None:
        return None
    return Best(candidates[trajectory.best], trajectory.final)


def summary(trajectory: Trajectory, baseline: Baseline, judged: Sequence[CandidateEvaluated] = ()) -> Row:
    """A row of an episode. `judged` are all evaluations, including those of the full tier."""
    outcomes = Counter(evaluation.outcome.value for step in trajectory.steps for evaluation in step.evaluations)
    row: Row = {
        "outcome": "no_candidate",
        "stop_reason": trajectory.stop_reason.value,
        "evaluations": outcomes.total(),
        "outcomes": dict(outcomes),
        "eager_ms": baseline.eager_ms,
        "compile_ms": baseline.compile_ms,
        "floor_ms": baseline.floor_ms,
        "messages": sorted({event.evaluation.message for event in judged if not event.evaluation.correct})[:5],
    }
    final = trajectory.final
    if final is None or final.timing is None or final.accuracy is None:
        return row
    timing, interval = final.timing, final.timing.speedup_vs_compile_ci
    faster, slower = (call(timing.speedup_vs_compile, interval) for call in (measurably_faster, measurably_slower))
    schedules = {
        candidate.hash(): candidate.plan.schedule for step in trajectory.steps for candidate in step.candidates
    }
    return row | {
        "outcome": "faster" if faster else "slower" if slower else "same",
        "schedule": schedules.get(trajectory.best or ""),
        "candidate_ms": timing.candidate_ms,
        "eager_ms": timing.eager_ms,
        "compile_ms": timing.compile_ms,
        "speedup_vs_eager": timing.speedup_vs_eager,
        "speedup_vs_compile": timing.speedup_vs_compile,
        "speedup_vs_compile_ci": interval,
        "roofline": timing.roofline,
        "share_in_our_kernels": final.share_in_our_kernels,
        "noise": timing.noise,
        "warning": timing.warning,
        "error": final.accuracy.error,
        "error_ratio": final.accuracy.error_ratio,
        "inputs_tried": final.accuracy.inputs_tried,
    }
