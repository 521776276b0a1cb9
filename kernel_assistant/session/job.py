"""One job from task to result: opens the environment, plays an episode or checks one candidate, leaves artifacts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kernel_assistant.agent.budget import Budget
from kernel_assistant.agent.loop import run_episode
from kernel_assistant.config import SANDBOXES
from kernel_assistant.environment.session import Environment, open_environment
from kernel_assistant.errors import InternalError, MissingError, UsageError
from kernel_assistant.events import AnyEvent, CandidateEvaluated, Progress
from kernel_assistant.policy.base import EpisodeView, Move, Policy
from kernel_assistant.policy.generator import GeneratorPolicy
from kernel_assistant.records import (
    Candidate,
    Evaluation,
    JobOutcome,
    KernelTask,
    OpGraph,
    OptimizeResult,
    StopReason,
    Tier,
    Trajectory,
)
from kernel_assistant.session.artifacts import write_result
from kernel_assistant.session.jobs import JobServices
from kernel_assistant.session.outcome import best_of, confirmed, is_faster, outcome_of
from kernel_assistant.store import JobKind, JobOptions, Store

Emit = Callable[[AnyEvent], None]


def lane_of(task: KernelTask) -> str:
    """The device whose jobs run one after another. Raises MissingError where there is no such device."""
    from kernel_assistant.targets.detect import detect

    return f"{task.target}:{detect(task.target).index}"


def run_job(
    task: KernelTask,
    options: JobOptions,
    *,
    emit: Emit,
    cancel: threading.Event,
    services: JobServices,
) -> OptimizeResult:
    """Run one job. Raises UsageError, MissingError and InternalError; a bad kernel is in the result."""
    if options.sandbox not in SANDBOXES:
        raise UsageError(f"unknown sandbox {options.sandbox!r}", "one of " + ", ".join(SANDBOXES))
    started = time.monotonic()
    with open_environment(
        task,
        python=options.python,
        sandbox_mode=options.sandbox,
        cache_dir=services.settings.cache_dir,
        cancel=cancel,
        emit=emit,
    ) as environment:
        run = _Run(task, options, environment, emit, cancel, services, started)
        return run.optimize() if options.kind is JobKind.optimize else run.check()


class _Run:
    """The parts of one job that share its environment."""

    def __init__(
        self,
        task: KernelTask,
        options: JobOptions,
        environment: Environment,
        emit: Emit,
        cancel: threading.Event,
        services: JobServices,
        started: float,
    ) -> None:
        self._task = task
        self._options = options
        self._environment = environment
        self._emit = emit
        self._cancel = cancel
        self._services = services
        self._started = started

    def optimize(self) -> OptimizeResult:
        """Play an episode with the chosen policy."""
        policy = _Recorded(choose_policy(self._options.policy), self._services.store, self._services.job)
        trajectory = run_episode(
            self._environment,
            policy,
            Budget(seconds=self._options.budget),
            emit=self._emit,
            cancel=self._cancel,
            resume_steps=self._services.resume_steps,
        )
        self._services.store.add_trajectory(self._services.job, trajectory)
        candidate, evaluation = best_candidate(trajectory)
        return self._result(
            outcome=outcome_of(trajectory),
            evaluation=trajectory.final,
            artifacts=self._write(trajectory, candidate, trajectory.final or evaluation),
            policy=trajectory.policy,
            evaluations=sum(len(step.evaluations) for step in trajectory.steps),
            stop_reason=trajectory.stop_reason,
        )

    def check(self) -> OptimizeResult:
        """Send one given candidate through the whole gate."""
        candidate = self._options.candidate
        if candidate is None:
            raise InternalError("a job to check a candidate came without one")
        self._emit(Progress(phase="search", message=f"checking {len(candidate.sources)} source files"))
        (evaluation,) = self._environment.evaluate((candidate,), Tier.full)
        self._emit(
            CandidateEvaluated(turn=0, schedule=candidate.plan.schedule, origin=candidate.origin, evaluation=evaluation)
        )
        return self._result(
            outcome=_checked(evaluation),
            evaluation=evaluation,
            artifacts=self._write(None, candidate, evaluation),
            policy=candidate.origin,
            evaluations=1,
            stop_reason=StopReason.finished,
        )

    def _write(
        self, trajectory: Trajectory | None, candidate: Candidate | None, evaluation: Evaluation | None
    ) -> dict[str, str]:
        built = candidate is not None and evaluation is not None and evaluation.correct
        graph: OpGraph = self._environment.graph
        return write_result(
            self._services.folder / "result",
            task=self._task,
            graph=graph,
            trajectory=trajectory,
            candidate=candidate,
            evaluation=evaluation,
            binaries=self._environment.binaries(candidate) if built and candidate is not None else {},
        )

    def _result(
        self,
        *,
        outcome: JobOutcome,
        evaluation: Evaluation | None,
        artifacts: dict[str, str],
        policy: str,
        evaluations: int,
        stop_reason: StopReason,
    ) -> OptimizeResult:
        return OptimizeResult(
            task=self._task.name,
            target=self._task.target,
            device=self._environment.device.name,
            outcome=outcome,
            best=best_of(evaluation, policy, tuple(sorted(artifacts.values()))),
            evaluations=evaluations,
            seconds=time.monotonic() - self._started,
            stop_reason=stop_reason.value,
            artifacts={"job": self._services.job, **artifacts},
        )


def choose_policy(name: str) -> Policy:
    """`auto` takes what is there. Raises MissingError for a model, which this version does not serve."""
    if name == "model":
        raise MissingError("no model is installed", "use --policy generator (or auto, which takes what is there)")
    return GeneratorPolicy()


def best_candidate(trajectory: Trajectory) -> tuple[Candidate | None, Evaluation | None]:
    """The candidate that `trajectory.best` names, with its last evaluation in the search."""
    for step in reversed(trajectory.steps):
        for candidate, evaluation in zip(step.candidates, step.evaluations, strict=True):
            if evaluation.candidate == trajectory.best:
                return candidate, evaluation
    return None, None


def _checked(evaluation: Evaluation) -> JobOutcome:
    if not confirmed(evaluation):
        return JobOutcome.no_candidate
    return JobOutcome.improved if is_faster(evaluation) else JobOutcome.no_measurable_gain


class _Recorded:
    """A policy whose finished steps are stored before it moves again, so that a crash loses one turn at most."""

    def __init__(self, policy: Policy, store: Store, job: str) -> None:
        self._policy = policy
        self._store = store
        self._job = job
        self._stored = 0
        self.name = policy.name

    def supports(self, graph: OpGraph, target: str) -> str | None:
        return self._policy.supports(graph, target)

    def step(self, view: EpisodeView) -> Move:
        for step in view.steps[self._stored :]:
            self._store.add_step(self._job, step)
        self._stored = len(view.steps)
        return self._policy.step(view)
