"""An episode: policies search, one after another or at the same time; the best of all their candidates is confirmed.

The search uses the quick tier. Users see only the result of the full tier, on fresh samples; if the best candidate
fails there, the next one is tried.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count

from kernel_assistant.agent.budget import Budget, Phase
from kernel_assistant.agent.confirming import CONFIRM_SECONDS, ConfirmationBudget, within_reach
from kernel_assistant.agent.evaluated import NEVER, BestSoFar, EvaluatedCandidates
from kernel_assistant.agent.evaluator import Evaluator
from kernel_assistant.agent.search import SETTLED, Emit, Search, tell, tell_best, until_settled
from kernel_assistant.environment.job_clock import JobClock
from kernel_assistant.environment.repeated_measurement import MOST_LOOKS
from kernel_assistant.errors import Cancelled, DeviceError, OutOfTime, WorkerError
from kernel_assistant.events import Progress, Warned
from kernel_assistant.policy.base import Policy
from kernel_assistant.records import Candidate, Evaluation, Outcome, Step, StopReason, Trajectory

NOT_COMPARED = "torch.compile was still compiling the module when the budget ended: it is compared with eager alone"


class Episode:
    """Runs one episode on one task: the search, phase after phase (a phase is a group of policies that search at the
    same time), then the confirmation of the fastest candidates in the full tier."""

    def __init__(
        self,
        environment: Evaluator,
        phases: Sequence[Phase],
        emit: Emit,
        cancel: threading.Event,
        clock: JobClock | None = None,
    ) -> None:
        self.environment, self.phases, self.emit, self.cancel = environment, phases, emit, cancel
        self.clock = clock or JobClock()
        self.began = self.clock.now()
        earlier = tuple(step for phase in phases for step in phase.steps)
        self._turns = count(max((step.turn for step in earlier), default=0) + 1)
        self._standing = BestSoFar(EvaluatedCandidates(earlier).best_ms)
        self.searches: list[Search] = []
        self.final: Evaluation | None = None
        self._verified: list[Evaluation] = []
        self._in_full: list[Evaluation] = []
        self._broken = ""

    def run(self) -> Trajectory:
        """Searches, confirms, and returns the trajectory of the episode. Failed candidates, a cancellation, a lost
        worker and the end of the time raise nothing; they give the trajectory its stop reason."""
        reason = StopReason.wall_time
        try:
            reason = self._search()
            self._confirm()
        except OutOfTime:
            reason = self._cut_short(reason)
        except Cancelled:
            reason = StopReason.cancelled
        except (WorkerError, DeviceError) as error:
            reason, self._broken = StopReason.environment_broken, error.cause
        return Trajectory(
            task=self.environment.task.hash(),
            policy=self._credited(),
            steps=tuple(sorted((step for search in self.searches for step in search.steps), key=lambda one: one.turn)),
            stop_reason=reason,
            seconds=self.clock.now() - self.began,
            best=self.final.candidate if self.final and self.final.correct else None,
            final=self.final,
            unsupported=tuple(search.unsupported for search in self.searches if search.unsupported),
            in_full=tuple(self._in_full),
            broken=self._broken or next((search.broken for search in self.searches if search.broken), ""),
            next_step=next((search.next_step for search in self.searches if search.next_step), ""),
        )

    def _search(self) -> StopReason:
        reason = StopReason.unsupported
        for phase in self.phases:
            phase_reason = self._run_phase(phase)
            # A policy that cannot write the graph does not replace the stop reason of an earlier one.
            reason = reason if phase_reason is StopReason.unsupported and self._steps_taken else phase_reason
            if reason in SETTLED:
                break
        return reason

    def _run_phase(self, phase: Phase) -> StopReason:
        if phase.says:
            self.emit(Progress(phase="search", message=phase.says))
        enough = threading.Event()
        searches = [
            Search(
                self.environment,
                policy,
                phase.budget,
                self.emit,
                self.cancel,
                began=self.began,
                steps=phase.steps if index == 0 else (),
                turns=self._turns,
                standing=self._standing,
                enough=enough,
                clock=self.clock,
            )
            for index, policy in enumerate(phase.policies)
        ]
        self.searches += searches
        if len(searches) == 1:
            return searches[0].run()
        with ThreadPoolExecutor(len(searches), "search") as pool:
            reasons = list(pool.map(lambda search: until_settled(search, enough), searches))
        return next((reason for reason in reasons if reason in SETTLED), reasons[-1])

    @property
    def _steps_taken(self) -> int:
        return sum(len(search.steps) for search in self.searches)

    def _credited(self) -> str:
        """Returns the name of the policy that wrote the confirmed candidate; without one, the names of all that
        searched."""
        names = [search.policy.name for search in self.searches] or [
            policy.name for phase in self.phases for policy in phase.policies
        ]
        if self.final is not None and self.final.correct:
            names = [search.policy.name for search in self.searches if self.final.candidate in search.tried.candidates]
            return names[0]
        return ", ".join(dict.fromkeys(names))

    def _confirm(self) -> None:
        """Evaluates the finalists (the fastest candidates of the search) in the full tier. If several are correct,
        measures the fastest again on fresh samples.

        Confirmation may take as long as the search plus `CONFIRM_SECONDS`, but not the part of the job's time that is
        reserved for free wins (speed-ups without a kernel). When this time is over, no further finalist begins. An
        unclear verdict is measured again, also in the rest of the job's time. Finalists after the first are measured
        once, because the fastest of several is measured again anyway.
        """
        tried = self._tried()
        beside_compile = self.environment.wait_for_compile(0.0)
        most = self.clock.now() - self.began + CONFIRM_SECONDS
        clock = ConfirmationBudget(min(most, self.clock.before_free()), self.clock.now)
        until = self.clock.now() + self.clock.before_free()
        verified = self._verified
        finalists = tried.finalists()
        for number, candidate in enumerate(finalists, start=1):
            if verified and not (tried.is_close(candidate) and within_reach(verified[0]) and clock.has_room(2)):
                break
            if number > 1 and not clock.has_room(1):
                self.emit(
                    Warned(message=f"finalist {number} of {len(finalists)} is not verified in full: no time is left")
                )
                break
            message = f"verifying and measuring in full: finalist {number} of up to {len(finalists)}"
            self.emit(Progress(phase="confirm", message=message))
            with clock.one():
                evaluation = self._confirmed(candidate, until, looks=1 if verified else MOST_LOOKS)
            if evaluation.correct and evaluation.timing:
                verified.append(evaluation)
            elif evaluation.outcome is Outcome.inconclusive:
                self.final = evaluation
        if not verified:
            return
        winner = _fastest(verified)
        if len(verified) > 1:
            self.emit(Progress(phase="confirm", message="measuring the winner again on fresh samples"))
            winner = self._confirmed(tried.candidates[winner.candidate], until)
        if winner.correct and winner.timing:
            self.final = winner
            tell_best(self.emit, tried.candidates[winner.candidate], winner, confirmed=True)
            if not beside_compile and winner.timing.compile_ms is None:
                self._compare_with_compile(tried.candidates[winner.candidate], clock.longest)
        elif winner.outcome is Outcome.inconclusive:
            self.final = winner

    def _compare_with_compile(self, candidate: Candidate, longest: float) -> None:
        """Measures the confirmed candidate once more, now also against torch.compile. Waits for the compilation by
        torch.compile until `longest` seconds before the job's limit, because the measurement takes that long. If it has
        not ended by then, warns and measures nothing."""
        self.emit(Progress(phase="confirm", message="waiting for torch.compile, to compare with it"))
        if not self.environment.wait_for_compile(max(self.clock.until_limit() - longest, 0.0)):
            self.emit(Warned(message=NOT_COMPARED))
            return
        evaluation = self._confirmed(candidate, 0.0, looks=1)
        if evaluation.correct and evaluation.timing:
            self.final = evaluation
            tell_best(self.emit, candidate, evaluation, confirmed=True)
        elif evaluation.outcome is not Outcome.inconclusive:
            self.final = None

    def _cut_short(self, reason: StopReason) -> StopReason:
        """Sets `self.final` to the fastest finalist that was confirmed before the time ran out, and returns the stop
        reason: `reason`, or a reason that says that nothing was confirmed."""
        tried = self._tried()
        if self._verified and not (self.final and self.final.correct):
            self.final = _fastest(self._verified)
            tell_best(self.emit, tried.candidates[self.final.candidate], self.final, confirmed=True)
        if self.final is not None:
            return reason
        return StopReason.unverified if tried.finalists() else StopReason.wall_time

    def _tried(self) -> EvaluatedCandidates:
        return EvaluatedCandidates(tuple(step for search in self.searches for step in search.steps))

    def _confirmed(self, candidate: Candidate, until: float, looks: int = MOST_LOOKS) -> Evaluation:
        evaluation = self.environment.confirm(candidate, looks=looks, until=until)
        self._in_full.append(evaluation)
        tell(self.emit, self._steps_taken + 1, candidate, evaluation, best=False)
        return evaluation


def _fastest(verified: Sequence[Evaluation]) -> Evaluation:
    return min(verified, key=lambda one: one.timing.candidate_ms if one.timing else NEVER)


def run_episode(
    environment: Evaluator,
    policy: Policy,
    budget: Budget,
    *,
    emit: Emit,
    cancel: threading.Event,
    resume_steps: tuple[Step, ...] = (),
    clock: JobClock | None = None,
) -> Trajectory:
    """Runs an episode with `policy` and returns its trajectory. `resume_steps` are the steps that were recorded before
    a crash; setting `cancel` ends the episode."""
    return Episode(environment, [Phase((policy,), budget, resume_steps)], emit, cancel, clock).run()
