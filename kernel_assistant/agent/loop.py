"""The loop: a policy proposes, the environment judges, until a documented stop.

Search runs in the quick tier. What is reported is the winner alone, verified in full and measured again on fresh
samples; a finalist that fails there is replaced by the next.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kernel_assistant.agent.budget import Budget
from kernel_assistant.agent.judging import Judging
from kernel_assistant.agent.stops import Stop, reason_to_stop
from kernel_assistant.agent.tried import Tried
from kernel_assistant.errors import Cancelled, DeviceError, KernelAssistantError, WorkerError
from kernel_assistant.events import AnyEvent, BestImproved, CandidateEvaluated, Progress, Warned
from kernel_assistant.policy.base import EpisodeView, Move, Policy
from kernel_assistant.records import Baseline, Candidate, Evaluation, Step, StopReason, Tier, Trajectory


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
        self.tried = Tried(resume_steps)
        self.final: Evaluation | None = None
        self.stalled = 0

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
                reason = reason_to_stop(
                    baseline,
                    self.tried.best_ms,
                    self.budget,
                    seconds=time.monotonic() - self.began,
                    turns=len(self.steps),
                    stalled=self.stalled,
                )
                if reason is not None:
                    return reason
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
        before = self.tried.best_ms
        self._judge(move, began)
        self.stalled = 0 if self.tried.best_ms < before * 0.99 else self.stalled + 1

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
        fresh = self.tried.fresh(move.candidates)
        try:
            for candidate, evaluation in zip(fresh, self.environment.iterate(fresh, Tier.quick), strict=True):
                evaluations.append(evaluation)
                self.tried.add(candidate, evaluation)
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

    def _confirm(self) -> None:
        """Full verification of the finalists, then fresh samples of the winner."""
        verified: list[tuple[float, Candidate]] = []
        for candidate in self.tried.finalists():
            if verified and not self.tried.is_close(candidate):
                break
            self.emit(Progress(phase="confirm", message="verifying in full"))
            evaluation = self.environment.confirm(candidate)
            self._report(candidate, evaluation)
            if evaluation.timing:
                verified.append((evaluation.timing.candidate_ms, candidate))
        if not verified:
            return
        self.emit(Progress(phase="confirm", message="measuring the winner again on fresh samples"))
        _, winner = min(verified, key=lambda entry: entry[0])
        evaluation = self.environment.confirm(winner)
        self._report(winner, evaluation, confirmed=True)
        if evaluation.correct:
            self.final = evaluation

    def _report(self, candidate: Candidate, evaluation: Evaluation, confirmed: bool = False) -> None:
        schedule = candidate.plan.schedule
        turn = len(self.steps) + 1
        self.emit(CandidateEvaluated(turn=turn, schedule=schedule, origin=candidate.origin, evaluation=evaluation))
        timing = evaluation.timing
        if timing and (confirmed or timing.candidate_ms <= self.tried.best_ms):
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
