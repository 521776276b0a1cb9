"""The loop: a policy proposes, the environment judges, until a documented stop.

Search runs in the quick tier. What is reported is the winner alone, verified in full and measured again on fresh
samples; a finalist that fails there is replaced by the next.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from kernel_assistant.agent.budget import Budget
from kernel_assistant.errors import Cancelled, DeviceError, KernelAssistantError, WorkerError
from kernel_assistant.events import AnyEvent, BestImproved, CandidateEvaluated, Progress, Warned
from kernel_assistant.policy.base import EpisodeView, Move, Policy
from kernel_assistant.records import (
    Baseline,
    Candidate,
    Evaluation,
    KernelTask,
    OpGraph,
    Step,
    StopReason,
    Tier,
    Trajectory,
)
from kernel_assistant.targets.base import DeviceFacts

AT_LIMIT = 0.95
#: A share of the roofline beyond this says that the ceilings were not measured well; it ends nothing.
BELIEVABLE = 1.1
#: A finalist this close to the best in the quick tier is measured in full as well.
CLOSE = 1.03
FINALISTS = 3


class Stop(Exception):
    """Ends an episode; carries the documented reason."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class Judging(Protocol):
    """What the loop needs of an environment."""

    task: KernelTask
    graph: OpGraph
    device: DeviceFacts

    def baseline(self, *, compiled: bool) -> Baseline: ...

    def iterate(self, candidates: Sequence[Candidate], tier: Tier) -> Iterable[Evaluation]: ...

    def confirm(self, candidate: Candidate) -> Evaluation: ...


class Episode:
    """One run of a policy on one task."""

    def __init__(
        self,
        environment: Judging,
        policy: Policy,
        budget: Budget,
        emit: Callable[[AnyEvent], None],
        cancel: threading.Event,
        resume_steps: tuple[Step, ...] = (),
    ) -> None:
        self.environment, self.policy, self.budget = environment, policy, budget
        self.emit, self.cancel = emit, cancel
        self.steps: list[Step] = list(resume_steps)
        self.began = time.monotonic()
        self.known: dict[str, Candidate] = {}
        self.quick: dict[str, Evaluation] = {}
        self.final: Evaluation | None = None
        self.stalled = 0
        for step in resume_steps:
            self._remember(step.candidates, step.evaluations)

    def run(self) -> Trajectory:
        """Search, then confirm. Never raises for what a candidate or a cancel does."""
        try:
            reason = self._search()
            self._confirm()
        except Cancelled:
            reason = StopReason.cancelled
        except (WorkerError, DeviceError):
            reason = StopReason.environment_broken
        return Trajectory(
            task=self.environment.task.hash(),
            policy=self.policy.name,
            steps=tuple(self.steps),
            stop_reason=reason,
            seconds=time.monotonic() - self.began,
            best=self.final.candidate if self.final else None,
            final=self.final,
        )

    def _search(self) -> StopReason:
        if self.policy.supports(self.environment.graph, self.environment.device.target) is not None:
            return StopReason.unsupported
        baseline = self.environment.baseline(compiled=False)
        try:
            while True:
                self._step(baseline)
                if baseline.compile_ms is None:
                    baseline = self.environment.baseline(compiled=True)
                    self.emit(Progress(phase="search", message="searching"))
                self._stop_if_done(baseline)
        except Stop as stop:
            return stop.reason

    def _step(self, baseline: Baseline) -> None:
        """One turn: ask the policy, judge what it submits, write it down."""
        began = time.monotonic() - self.began
        view = EpisodeView(
            graph=self.environment.graph,
            target=self.environment.device.target,
            device=self.environment.device,
            baseline=baseline,
            steps=tuple(self.steps),
            remaining=self.budget.seconds - began,
        )
        move = self._ask(view)
        if move.finished:
            raise Stop(StopReason.finished)
        before = self._best_ms()
        self._judge(move, began)
        self.stalled = 0 if self._best_ms() < before * 0.99 else self.stalled + 1

    def _ask(self, view: EpisodeView) -> Move:
        try:
            return self.policy.step(view)
        except KernelAssistantError:
            raise
        except Exception as error:
            self.emit(Warned(message=f"policy {self.policy.name} failed: {type(error).__name__}: {error}"))
            raise Stop(StopReason.policy_broken) from error

    def _judge(self, move: Move, began: float) -> None:
        """Evaluate what is new in a move. The step is kept with what was found, also if it is cut short."""
        evaluations: list[Evaluation] = []
        unseen = {candidate.hash(): candidate for candidate in move.candidates}
        fresh = tuple(candidate for key, candidate in unseen.items() if key not in self.quick)
        try:
            for candidate, evaluation in zip(fresh, self.environment.iterate(fresh, Tier.quick), strict=True):
                evaluations.append(evaluation)
                self._remember((candidate,), (evaluation,))
                self._report(candidate, evaluation)
        finally:
            self.steps.append(
                Step(
                    turn=len(self.steps) + 1,
                    message=move.message,
                    candidates=fresh[: len(evaluations)],
                    evaluations=tuple(evaluations),
                    started=began,
                    ended=time.monotonic() - self.began,
                )
            )

    def _stop_if_done(self, baseline: Baseline) -> None:
        best = self._best_ms()
        compiled = baseline.compile_ms or baseline.eager_ms
        if reaches_limit(baseline.floor_ms, compiled):
            raise Stop(StopReason.at_limit)
        if reaches_limit(baseline.floor_ms, best):
            raise Stop(StopReason.at_roofline)
        if self.budget.target_speedup and compiled / best >= self.budget.target_speedup:
            raise Stop(StopReason.target_reached)
        if time.monotonic() - self.began >= self.budget.seconds:
            raise Stop(StopReason.wall_time)
        if len(self.steps) >= self.budget.turns:
            raise Stop(StopReason.turns)
        if self.stalled >= self.budget.patience:
            raise Stop(StopReason.no_progress)

    def _confirm(self) -> None:
        """Full verification of the finalists, then fresh samples of the winner."""
        ranked = sorted(self._correct(), key=self._quick_ms)
        verified: list[tuple[float, str]] = []
        for key in ranked[:FINALISTS]:
            if verified and self._quick_ms(key) > CLOSE * self._quick_ms(ranked[0]):
                break
            self.emit(Progress(phase="confirm", message="verifying in full"))
            evaluation = self.environment.confirm(self.known[key])
            self._report(self.known[key], evaluation)
            if evaluation.timing:
                verified.append((evaluation.timing.candidate_ms, key))
        if not verified:
            return
        self.emit(Progress(phase="confirm", message="measuring the winner again on fresh samples"))
        winner = self.known[min(verified)[1]]
        evaluation = self.environment.confirm(winner)
        self._report(winner, evaluation, confirmed=True)
        if evaluation.correct:
            self.final = evaluation

    def _remember(self, candidates: Sequence[Candidate], evaluations: Sequence[Evaluation]) -> None:
        for candidate, evaluation in zip(candidates, evaluations, strict=True):
            self.known[candidate.hash()] = candidate
            self.quick[candidate.hash()] = evaluation

    def _report(self, candidate: Candidate, evaluation: Evaluation, confirmed: bool = False) -> None:
        schedule = candidate.plan.schedule
        turn = len(self.steps) + 1
        self.emit(CandidateEvaluated(turn=turn, schedule=schedule, origin=candidate.origin, evaluation=evaluation))
        timing = evaluation.timing
        if timing and (confirmed or timing.candidate_ms <= self._best_ms()):
            self.emit(
                BestImproved(
                    candidate=evaluation.candidate,
                    schedule=schedule,
                    candidate_ms=timing.candidate_ms,
                    speedup_vs_eager=timing.speedup_vs_eager,
                    speedup_vs_compile=timing.speedup_vs_compile,
                    confirmed=confirmed,
                )
            )

    def _correct(self) -> list[str]:
        return [key for key, evaluation in self.quick.items() if evaluation.correct and evaluation.timing]

    def _quick_ms(self, key: str) -> float:
        timing = self.quick[key].timing
        return timing.candidate_ms if timing else float("inf")

    def _best_ms(self) -> float:
        return min((self._quick_ms(key) for key in self.quick), default=float("inf"))


def reaches_limit(floor_ms: float, measured_ms: float) -> bool:
    """Whether a time is at what the device allows. Well below the floor it is the floor that is wrong."""
    return AT_LIMIT <= floor_ms / measured_ms <= BELIEVABLE


def run_episode(
    environment: Judging,
    policy: Policy,
    budget: Budget,
    *,
    emit: Callable[[AnyEvent], None],
    cancel: threading.Event,
    resume_steps: tuple[Step, ...] = (),
) -> Trajectory:
    """Drive `policy` on the environment's task to a documented stop."""
    return Episode(environment, policy, budget, emit, cancel, resume_steps).run()
