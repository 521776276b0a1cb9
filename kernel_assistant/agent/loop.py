"""An episode: policies search, one after another or side by side, and the best of all is confirmed.

Search runs in the quick tier. What is reported is the winner alone, verified in full and measured again on fresh
samples; a finalist that fails there is replaced by the next.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count

from kernel_assistant.agent.budget import Budget
from kernel_assistant.agent.confirming import CONFIRM_SECONDS, Allowance, within_reach
from kernel_assistant.agent.judging import Judging
from kernel_assistant.agent.search import Emit, Search, tell, tell_best
from kernel_assistant.agent.tried import NEVER, Standing, Tried
from kernel_assistant.errors import Cancelled, DeviceError, WorkerError
from kernel_assistant.events import Progress, Warned
from kernel_assistant.policy.base import Policy
from kernel_assistant.records import Candidate, Evaluation, Outcome, Step, StopReason, Trajectory

#: After these nobody else needs to search.
_SETTLED = (StopReason.at_limit, StopReason.at_roofline, StopReason.target_reached, StopReason.cancelled)


@dataclass(frozen=True)
class Phase:
    """Policies that search at the same time, on an environment that lends itself to several if they are several.

    The budget's seconds count from the start of the episode. `steps` were measured before a crash. `says` is what the
    user is told when it begins.
    """

    policies: tuple[Policy, ...]
    budget: Budget
    steps: tuple[Step, ...] = ()
    says: str = ""


class Episode:
    """Phases on one task, one after another."""

    def __init__(self, environment: Judging, phases: Sequence[Phase], emit: Emit, cancel: threading.Event) -> None:
        self.environment, self.phases, self.emit, self.cancel = environment, phases, emit, cancel
        self.began = time.monotonic()
        earlier = tuple(step for phase in phases for step in phase.steps)
        self._turns = count(max((step.turn for step in earlier), default=0) + 1)
        self._standing = Standing(Tried(earlier).best_ms)
        self.searches: list[Search] = []
        self.final: Evaluation | None = None

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
            policy=self._credited(),
            steps=tuple(sorted((step for search in self.searches for step in search.steps), key=lambda one: one.turn)),
            stop_reason=reason,
            seconds=time.monotonic() - self.began,
            best=self.final.candidate if self.final and self.final.correct else None,
            final=self.final,
        )

    def _search(self) -> StopReason:
        reason = StopReason.unsupported
        for phase in self.phases:
            found = self._play(phase)
            # A policy that cannot write the graph is no reason why the one before it stopped.
            reason = reason if found is StopReason.unsupported and self._steps_taken else found
            if reason in _SETTLED:
                break
        return reason

    def _play(self, phase: Phase) -> StopReason:
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
                steps=phase.steps if place == 0 else (),
                turns=self._turns,
                standing=self._standing,
                enough=enough,
            )
            for place, policy in enumerate(phase.policies)
        ]
        self.searches += searches
        if len(searches) == 1:
            return searches[0].run()
        with ThreadPoolExecutor(len(searches), "search") as pool:
            reasons = list(pool.map(lambda search: _until_settled(search, enough), searches))
        return next((reason for reason in reasons if reason in _SETTLED), reasons[-1])

    @property
    def _steps_taken(self) -> int:
        return sum(len(search.steps) for search in self.searches)

    def _credited(self) -> str:
        """The policy that wrote the winner; without one, all that played."""
        names = [search.policy.name for search in self.searches] or [
            policy.name for phase in self.phases for policy in phase.policies
        ]
        if self.final is not None and self.final.correct:
            names = [search.policy.name for search in self.searches if self.final.candidate in search.tried.candidates]
            return names[0]
        return ", ".join(dict.fromkeys(names))

    def _confirm(self) -> None:
        """Full verification of the finalists, then fresh samples of the winner where it was chosen among several.

        It takes at most as long as the search and `CONFIRM_SECONDS`: a finalist is begun while there is room for it.
        """
        tried = Tried(tuple(step for search in self.searches for step in search.steps))
        clock = Allowance(time.monotonic() - self.began + CONFIRM_SECONDS)
        verified: list[Evaluation] = []
        finalists = tried.finalists()
        for place, candidate in enumerate(finalists, start=1):
            if verified and not (tried.is_close(candidate) and within_reach(verified[0]) and clock.has_room(2)):
                break
            if not clock.has_room(1):
                self.emit(
                    Warned(message=f"finalist {place} of {len(finalists)} is not verified in full: no time is left")
                )
                break
            message = f"verifying and measuring in full: finalist {place} of up to {len(finalists)}"
            self.emit(Progress(phase="confirm", message=message))
            with clock.one():
                evaluation = self._in_full(candidate, tried)
            if evaluation.correct and evaluation.timing:
                verified.append(evaluation)
            elif evaluation.outcome is Outcome.inconclusive:
                self.final = evaluation
        if not verified:
            return
        winner = min(verified, key=lambda one: one.timing.candidate_ms if one.timing else NEVER)
        if len(verified) > 1:
            self.emit(Progress(phase="confirm", message="measuring the winner again on fresh samples"))
            winner = self._in_full(tried.candidates[winner.candidate], tried)
        if winner.correct and winner.timing:
            self.final = winner
            tell_best(self.emit, tried.candidates[winner.candidate], winner, confirmed=True)
        elif winner.outcome is Outcome.inconclusive:
            self.final = winner

    def _in_full(self, candidate: Candidate, tried: Tried) -> Evaluation:
        evaluation = self.environment.confirm(candidate)
        tell(self.emit, self._steps_taken + 1, candidate, evaluation, best=False)
        return evaluation


def _until_settled(search: Search, enough: threading.Event) -> StopReason:
    """One of several searches; the first that has what the episode is after, or breaks, ends the others."""
    try:
        reason = search.run()
    except BaseException:
        enough.set()
        raise
    if reason in _SETTLED:
        enough.set()
    return reason


def run_episode(
    environment: Judging,
    policy: Policy,
    budget: Budget,
    *,
    emit: Emit,
    cancel: threading.Event,
    resume_steps: tuple[Step, ...] = (),
) -> Trajectory:
    """Drive `policy` on the environment's task to a documented stop."""
    return Episode(environment, [Phase((policy,), budget, resume_steps)], emit, cancel).run()
