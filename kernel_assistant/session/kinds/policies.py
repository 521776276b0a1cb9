"""Policies that store what they do, so that a crash loses at most one turn."""

from __future__ import annotations

from kernel_assistant.agent.model_policy import ModelPolicy
from kernel_assistant.policy.base import EpisodeView, Policy, PolicyAction
from kernel_assistant.records import OpGraph
from kernel_assistant.records.transcript import Message
from kernel_assistant.store import Store


class StoredPolicy:
    """A policy whose finished steps are stored before its next action."""

    def __init__(self, policy: Policy, store: Store, job: str) -> None:
        self._policy = policy
        self._store = store
        self._job = job
        self._stored = 0
        self.name = policy.name

    def supports(self, graph: OpGraph, target: str) -> str | None:
        return self._policy.supports(graph, target)

    def step(self, view: EpisodeView) -> PolicyAction:
        for step in view.steps[self._stored :]:
            self._store.add_step(self._job, step)
        self._stored = len(view.steps)
        return self._policy.step(view)


class StoredConversation(StoredPolicy):
    """A conversation whose messages are stored at every step. `number` counts the job's conversations from 0."""

    def __init__(self, policy: ModelPolicy, store: Store, job: str, number: int) -> None:
        super().__init__(policy, store, job)
        self._model, self._number = policy, number
        self._kept: tuple[Message, ...] = ()

    def step(self, view: EpisodeView) -> PolicyAction:
        try:
            return super().step(view)
        finally:
            self.keep()

    def keep(self, ending: str = "") -> None:
        transcript = self._model.transcript(ending)
        self._kept = self._store.transcripts.keep(self._job, self._number, transcript, self._kept)

    def close(self) -> None:
        self._model.close()
