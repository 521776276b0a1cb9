"""One policy's search: it proposes, the environment judges in the quick tier, until a documented stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import count

from kernel_assistant.agent.budget import Budget
from kernel_assistant.agent.judging import Judging
from kernel_assistant.agent.stops import Stop, reason_to_stop
from kernel_assistant.agent.tried import NEVER, Standing, Tried
from kernel_assistant.errors import Cancelled, KernelAssistantError
from kernel_assistant.events import AnyEvent, BestImproved, CandidateEvaluated, Progress, Warned
from kernel_assistant.policy.base import EpisodeView, Move, Policy
from kernel_assistant.policy.client import PolicyError
from kernel_assistant.records import Baseline, Candidate, Evaluation, Step, StopReason, Tier

Emit = Callable[[AnyEvent], None]
_ON_THE_DEVICE = ("verify", "profile")


class Search:
    """One run of a policy. `turns` numbers the steps and `standing` has the best, of several searches together; `began`
    is the episode's start.

    `enough` is set when one of several searches has found what the episode is after.
    """

    def __init__(
        self,
        environment: Judging,
        policy: Policy,
        budget: Budget,
        emit: Emit,
        cancel: threading.Event,
        *,
        began: float,
        steps: tuple[Step, ...] = (),
        turns: Iterator[int] | None = None,
        standing: Standing | None = None,
        enough: threading.Event | None = None,
    ) -> None:
        self.environment, self.policy, self.budget = environment, policy, budget
        self.emit, self.cancel = emit, cancel
        self.steps: list[Step] = list(steps)
        self.tried = Tried(steps)
        self._began = began
        self._turns = turns or count(len(steps) + 1)
        self._standing = standing or Standing(self.tried.best_ms)
        self._enough = enough or threading.Event()
        self._stalled = 0
        self._on_device = 0.0

    def run(self) -> StopReason:
        """Search to the end. Raises Cancelled, WorkerError and DeviceError."""
        if self.policy.supports(self.environment.graph, self.environment.device.target) is not None:
            return StopReason.unsupported
        baseline = self.environment.baseline(compiled=False)
        try:
            while True:
                self._step(baseline)
                if baseline.compile_ms is None:
                    baseline = self.environment.baseline(compiled=True)
                    self.emit(Progress(phase="search", message="searching"))
                reason = self._reason_to_stop(baseline)
                if reason is not None:
                    return reason
        except Stop as stop:
            return stop.reason

    def _reason_to_stop(self, baseline: Baseline) -> StopReason | None:
        reason = reason_to_stop(
            baseline,
            self.tried.best_ms,
            self.budget,
            seconds=time.monotonic() - self._began,
            turns=len(self.steps),
            stalled=self._stalled,
        )
        if reason is None and self._on_device >= self.budget.device_seconds:
            return StopReason.device_time
        return StopReason.finished if reason is None and self._enough.is_set() else reason

    def _step(self, baseline: Baseline) -> None:
        """One turn: ask the policy, judge what it submits, write it down."""
        if self.cancel.is_set():
            raise Cancelled("cancelled")
        began = time.monotonic() - self._began
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
        self._stalled = 0 if self.tried.best_ms < before * 0.99 else self._stalled + 1

    def _is_over(self) -> bool:
        """Whether the rest of a turn is left out: the time is over and something is right."""
        return self.tried.best_ms < NEVER and time.monotonic() - self._began > self.budget.seconds

    def _ask(self, view: EpisodeView) -> Move:
        try:
            return self.policy.step(view)
        except PolicyError as error:
            self.emit(Warned(message=f"policy {self.policy.name} ended ({error.kind}): {error.cause}"))
            raise Stop(StopReason.policy_broken) from error
        except (KernelAssistantError, Stop):
            raise
        except Exception as error:
            self.emit(Warned(message=f"policy {self.policy.name} failed: {type(error).__name__}: {error}"))
            raise Stop(StopReason.policy_broken) from error

    def _judge(self, move: Move, began: float) -> None:
        """Evaluate what is new in a move. The step is kept with what was found, also if it is cut short."""
        evaluations: list[Evaluation] = []
        turn = next(self._turns)
        # What the quick tier has seen already may still be asked for in full.
        fresh = self.tried.fresh(move.candidates) if move.tier is Tier.quick else move.candidates
        try:
            for candidate, evaluation in zip(fresh, self.environment.iterate(fresh, move.tier), strict=True):
                evaluations.append(evaluation)
                self.tried.add(candidate, evaluation)
                self._on_device += sum(evaluation.seconds.get(stage, 0.0) for stage in _ON_THE_DEVICE)
                best = self._standing.takes(evaluation)
                tell(self.emit, turn, candidate, evaluation, best=best, conversation=move.conversation)
                if self._is_over():
                    break
        finally:
            self.steps.append(
                Step(
                    turn=turn,
                    message=move.message,
                    candidates=fresh[: len(evaluations)],
                    evaluations=tuple(evaluations),
                    started=began,
                    ended=time.monotonic() - self._began,
                )
            )


def tell(
    emit: Emit, turn: int, candidate: Candidate, evaluation: Evaluation, *, best: bool, conversation: int = 0
) -> None:
    """Report one evaluation, and that it is the best so far where it is."""
    schedule = candidate.plan.schedule
    emit(
        CandidateEvaluated(
            turn=turn,
            schedule=schedule,
            origin=candidate.origin,
            evaluation=evaluation,
            conversation=conversation,
        )
    )
    if best:
        tell_best(emit, candidate, evaluation)


def tell_best(emit: Emit, candidate: Candidate, evaluation: Evaluation, *, confirmed: bool = False) -> None:
    """Report the best so far; nothing where it was not timed."""
    timing = evaluation.timing
    if timing:
        emit(
            BestImproved(
                candidate=evaluation.candidate,
                schedule=candidate.plan.schedule,
                candidate_ms=timing.candidate_ms,
                speedup_vs_eager=timing.speedup_vs_eager,
                speedup_vs_compile=timing.speedup_vs_compile,
                confirmed=confirmed,
            )
        )
