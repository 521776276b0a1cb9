"""The loop of every episode: a policy proposes candidates, a judge evaluates them, until there is a reason to stop.

The loop has no thread, clock or limit of its own; each caller passes its parts:

* Jobs (`agent/search.py`): the policy is the generator or a model; its errors are stop reasons. Several searches at
  once are threads of `agent/loop.py`, with one loop each, which share the numbers of the turns. The judge skips known
  candidates and, when the time is over, the rest of a turn. The stop rule reads the budget, the roofline and the other
  searches. `steps` begins with the steps from before a crash.
* Lessons (`episodes/play.py` of training): a lesson is the policy, and only the lesson ends the episode. The judge
  is a cache, with nominal times if the run's clock is nominal.
* PPO, rejection fine-tuning and evaluations (`ppo/play.py` of training): the policy is a conversation whose replies and
  evaluations come from batched rounds. The stop rule ends an episode whose judge was lost (`void`). `now` is always 0.
* The benchmark of held-out tasks (`bench/held_out_generator.py`): the policy is the generator, until it has used as
  many evaluations as a model.

Each of these loops shows the policy a view (graph, device, baseline, steps, time left), and records a step for each
turn, also when its evaluation raises an exception. It ends with one `StopReason`: `finished` by the policy, the reason
of a `Stop` that any part raises, or the reason that the stop rule returns. Other exceptions are not caught.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from kernel_assistant.agent.stops import Stop
from kernel_assistant.policy.base import EpisodeView, PolicyAction
from kernel_assistant.records import Baseline, Candidate, Evaluation, Numerics, OpGraph, Step, StopReason
from kernel_assistant.targets.base import DeviceFacts

#: More seconds than any episode takes: where episodes end by their turns.
UNLIMITED_SECONDS = 1e9


class ViewedTask(Protocol):
    """The facts about an open task that the loop shows to a policy."""

    @property
    def graph(self) -> OpGraph: ...

    @property
    def device(self) -> DeviceFacts: ...


@dataclass(kw_only=True)
class TurnLoop:
    """One episode of one policy on `task`.

    `policy` is called once a turn, `stop_rule` after each turn. `judge` gets the action and the number of its turn, and
    yields each candidate that it evaluated, with the evaluation. Each turn adds one step to `steps`, with the next
    number of `turns`. `seconds` is the time for the episode; `now` returns the seconds since it began.
    """

    task: ViewedTask
    policy: Callable[[EpisodeView], PolicyAction]
    judge: Callable[[PolicyAction, int], Iterable[tuple[Candidate, Evaluation]]]
    stop_rule: Callable[[], StopReason | None]
    baseline: Callable[[], Baseline]
    steps: list[Step] = field(default_factory=list)
    turns: Iterator[int] = field(default_factory=lambda: count(1))
    seconds: float = UNLIMITED_SECONDS
    numerics: Numerics = Numerics.kernelbench
    now: Callable[[], float] = lambda: 0.0

    def run(self) -> StopReason:
        """Runs turns until there is a reason to stop, and returns it. Exceptions of policy, judge and stop rule pass
        through, except `Stop`."""
        try:
            while True:
                began = self.now()
                action = self.policy(self._view(began))
                if action.finished:
                    return StopReason.finished
                self._evaluate(action, began)
                reason = self.stop_rule()
                if reason is not None:
                    return reason
        except Stop as stop:
            return stop.reason

    def _view(self, began: float) -> EpisodeView:
        return EpisodeView(
            graph=self.task.graph,
            target=self.task.device.target,
            device=self.task.device,
            baseline=self.baseline(),
            steps=tuple(self.steps),
            remaining=self.seconds - began,
            numerics=self.numerics,
        )

    def _evaluate(self, action: PolicyAction, began: float) -> None:
        """Evaluates an action's candidates and records the step, also with the evaluations made before an exception."""
        turn = next(self.turns)
        candidates: list[Candidate] = []
        evaluations: list[Evaluation] = []
        try:
            for candidate, evaluation in self.judge(action, turn):
                candidates.append(candidate)
                evaluations.append(evaluation)
        finally:
            self.steps.append(
                Step(
                    turn=turn,
                    message=action.message,
                    candidates=tuple(candidates),
                    evaluations=tuple(evaluations),
                    started=began,
                    ended=self.now(),
                )
            )
