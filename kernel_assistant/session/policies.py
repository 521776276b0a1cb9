"""Which policy plays, and keeping what it did."""

from __future__ import annotations

from kernel_assistant.policy.base import EpisodeView, Move, Policy
from kernel_assistant.records import OpGraph
from kernel_assistant.session.prepare import check_policy
from kernel_assistant.store import Store


def choose_policy(name: str) -> Policy:
    """`auto` takes what is there. Raises MissingError for a model, which this version does not serve."""
    check_policy(name)
    from kernel_assistant.policy.generator import GeneratorPolicy

    return GeneratorPolicy()


class Recorded:
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
