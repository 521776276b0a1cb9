"""The search of one policy: the policy proposes candidates and the environment evaluates them in the quick tier, until
there is a reason to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

from kernel_assistant.agent.budget import Budget
from kernel_assistant.agent.evaluated import NEVER, BestSoFar, EvaluatedCandidates
from kernel_assistant.agent.evaluator import Evaluator
from kernel_assistant.agent.stops import Stop, reason_to_stop
from kernel_assistant.agent.turns import TurnLoop
from kernel_assistant.environment.job_clock import JobClock
from kernel_assistant.errors import Cancelled, KernelAssistantError
from kernel_assistant.events import AnyEvent, BestImproved, CandidateEvaluated, Progress, Warned
from kernel_assistant.policy.base import EpisodeView, Policy, PolicyAction
from kernel_assistant.policy.client import PolicyError
from kernel_assistant.records import Baseline, Candidate, Evaluation, Step, StopReason, Tier

Emit = Callable[[AnyEvent], None]
_ON_THE_DEVICE = ("verify", "profile")
#: An evaluation in the full tier takes about this many times as long as one in the quick tier: 4 to 8 on two cores of
#: an Intel Xeon, 6 to 8 on an H200.
FULL_TIMES = 8.0
#: Stop reasons after which no other policy needs to search.
SETTLED = (StopReason.at_limit, StopReason.at_roofline, StopReason.target_reached, StopReason.cancelled)


class Search:
    """The search of one policy. The searches of an episode share `turns`, an iterator that numbers the steps, and
    `standing`, the best time so far. `began` is the episode's start in seconds of the clock.

    `enough` is set once one of several searches has reached the episode's goal; the others then stop.
    """

    def __init__(
        self,
        environment: Evaluator,
        policy: Policy,
        budget: Budget,
        emit: Emit,
        cancel: threading.Event,
        *,
        began: float,
        steps: tuple[Step, ...] = (),
        turns: Iterator[int] | None = None,
        standing: BestSoFar | None = None,
        enough: threading.Event | None = None,
        clock: JobClock | None = None,
    ) -> None:
        self.environment, self.policy, self.budget = environment, policy, budget
        self.emit, self.cancel = emit, cancel
        self.steps: list[Step] = list(steps)
        self.tried = EvaluatedCandidates(steps)
        self._began, self._clock = began, clock or JobClock()
        self._turns = turns or count(len(steps) + 1)
        self._standing = standing or BestSoFar(self.tried.best_ms)
        self._enough = enough or threading.Event()
        self._baseline: Baseline
        self._compared = False
        self._best_ms, self._stalled = self.tried.best_ms, 0
        #: Seconds of all evaluations on the device, and of the longest.
        self._on_device = self._longest = 0.0
        #: Why the policy cannot write the graph, "" where it can.
        self.unsupported = ""
        #: The cause that ended the policy, "" where it ended by itself, and what to do if its endpoint refused us.
        self.broken = self.next_step = ""

    def run(self) -> StopReason:
        """Searches and returns the reason to stop. Raises Cancelled, OutOfTime, WorkerError and DeviceError."""
        self._clock.check()
        reason = self.policy.supports(self.environment.graph, self.environment.device.target)
        if reason is not None:
            self.unsupported = f"{self.policy.name}: {reason}"
            return StopReason.unsupported
        self._baseline = self.environment.baseline(compiled=False)
        return TurnLoop(
            task=self.environment,
            policy=self._ask,
            judge=self._judge,
            stop_rule=self._reason_to_stop,
            baseline=lambda: self._baseline,
            steps=self.steps,
            turns=self._turns,
            seconds=self.budget.seconds,
            numerics=self.environment.task.numerics,
            now=self._seconds,
        ).run()

    def _seconds(self) -> float:
        return self._clock.now() - self._began

    def _reason_to_stop(self) -> StopReason | None:
        """Returns the reason to stop after a turn, None to go on. Also measures torch.compile as a baseline, after the
        first turn at which its compilation has ended."""
        before, self._best_ms = self._best_ms, self.tried.best_ms
        self._stalled = 0 if self._best_ms < before * 0.99 else self._stalled + 1
        if not self._compared and self._baseline.compile_ms is None and self.environment.wait_for_compile(0.0):
            self._compared = True
            self._baseline = self.environment.baseline(compiled=True)
            self.emit(Progress(phase="search", message="searching"))
        seconds = self._seconds()
        reason = reason_to_stop(
            self._baseline,
            self.tried.best_call_ms,
            replace(self.budget, seconds=seconds + self._seconds_left()),
            seconds=seconds,
            turns=len(self.steps),
            stalled=self._stalled,
        )
        if reason is None and self._on_device >= self.budget.device_seconds:
            return StopReason.device_time
        return StopReason.finished if reason is None and self._enough.is_set() else reason

    def _is_over(self) -> bool:
        """Whether to skip the rest of a turn's candidates: the search's time is over and a candidate is correct, or the
        job's limit is reached."""
        if self._clock.until_limit() <= 0:
            return True
        return self.tried.best_ms < NEVER and self._seconds_left() <= 0

    def _seconds_left(self) -> float:
        """Returns the seconds that the search may still take. They are fewer than its budget leaves if more time has to
        be reserved for the full tier."""
        left = self.budget.seconds - self._seconds()
        return min(left, self._clock.search_seconds(FULL_TIMES * self._longest))

    def _ask(self, view: EpisodeView) -> PolicyAction:
        if self.cancel.is_set():
            raise Cancelled("cancelled")
        self._clock.check()
        try:
            return self.policy.step(view)
        except PolicyError as error:
            self.broken = f"policy {self.policy.name} ended ({error.kind}): {error.cause}"
            self.next_step = error.next_step if error.kind == "refused" else ""
            self.emit(Warned(message=self.broken))
            raise Stop(StopReason.policy_broken) from error
        except Stop as stop:
            if stop.why:
                self.broken = f"policy {self.policy.name}: {stop.why}"
                self.emit(Warned(message=self.broken))
            raise
        except KernelAssistantError:
            raise
        except Exception as error:
            self.broken = f"policy {self.policy.name} failed: {type(error).__name__}: {error}"
            self.emit(Warned(message=self.broken))
            raise Stop(StopReason.policy_broken) from error

    def _judge(self, action: PolicyAction, turn: int) -> Iterator[tuple[Candidate, Evaluation]]:
        """Evaluates the candidates of an action and yields each with its evaluation. In the quick tier, candidates that
        were evaluated before are skipped. Stops early if the time is over."""
        # Candidates of the quick tier may be evaluated again in the full tier.
        fresh = self.tried.fresh(action.candidates) if action.tier is Tier.quick else action.candidates
        for candidate, evaluation in zip(fresh, self.environment.iterate(fresh, action.tier), strict=True):
            # The step has it, whatever happens next.
            yield candidate, evaluation
            self.tried.add(candidate, evaluation)
            on_device = sum(evaluation.seconds.get(stage, 0.0) for stage in _ON_THE_DEVICE)
            self._on_device += on_device
            self._longest = max(self._longest, on_device)
            best = self._standing.takes(evaluation)
            tell(self.emit, turn, candidate, evaluation, best=best, conversation=action.conversation)
            if self._is_over():
                break


def until_settled(search: Search, enough: threading.Event) -> StopReason:
    """Runs one of several searches at the same time, and returns its stop reason. If it reaches the episode's goal or
    raises, sets `enough`, which ends the other searches."""
    try:
        reason = search.run()
    except BaseException:
        enough.set()
        raise
    if reason in SETTLED:
        enough.set()
    return reason


def tell(
    emit: Emit, turn: int, candidate: Candidate, evaluation: Evaluation, *, best: bool, conversation: int = 0
) -> None:
    """Emits the event of one evaluation, for watchers of the job. If `best` is True, also emits the event of a new best
    candidate. `conversation` is the number of the model's conversation."""
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
    """Emits the event of a new best candidate; nothing if the candidate was not timed."""
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
