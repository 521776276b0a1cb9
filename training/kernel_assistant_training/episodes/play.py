"""One conversation of a teacher with the real environment, as the compact profile plays it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path

from kernel_assistant.agent.model_policy import Limits, ModelPolicy
from kernel_assistant.agent.profiles import CompactProfile
from kernel_assistant.agent.tools import World
from kernel_assistant.agent.tried import Tried
from kernel_assistant.agent.workspace import Workspace
from kernel_assistant.policy.base import EpisodeView
from kernel_assistant.records import Baseline, Candidate, Evaluation, Step
from kernel_assistant.records.transcript import Message
from kernel_assistant_training.episodes.client import LessonFailed, TeacherClient
from kernel_assistant_training.episodes.judged import Judged
from kernel_assistant_training.episodes.lesson import Kind, Lesson, Saying

LIMITS = Limits(turns=12)
#: A turn that is this much slower than the best of the conversation is nothing to learn.
SLOWER = 1.03


@dataclass(frozen=True)
class Played:
    """A conversation that went as intended. `turns` are (saying, its evaluation; None where there was none), `best` is
    the fastest right candidate."""

    messages: tuple[Message, ...]
    turns: tuple[tuple[Saying, Evaluation | None], ...]
    baseline: Baseline
    best: Candidate

    @property
    def best_ms(self) -> float:
        """Of the right candidates; a lesson has one."""
        return min(ms for _, found in self.turns if (ms := _ms(found)) is not None)

    @property
    def best_source(self) -> str:
        key = self.best.hash()
        return next(saying.source for saying, found in self.turns if found is not None and found.candidate == key)

    def check(self) -> None:
        """Raises LessonFailed for a turn that was made slow and is not."""
        for saying, found in self.turns:
            ms = _ms(found) if saying.kind is Kind.slow and saying.fault else None
            if ms is not None and ms <= SLOWER * self.best_ms:
                raise LessonFailed(saying, f"not slower: {ms:.4g} ms, best {self.best_ms:.4g}")

    def losses(self) -> list[bool]:
        """For each reply whether it is to be learned."""
        best = self.best_ms
        return [
            saying.kind is Kind.finish or ((ms := _ms(found)) is not None and ms <= SLOWER * best and not saying.fault)
            for saying, found in self.turns
        ]

    def seconds(self) -> dict[str, float]:
        """Of judging, by stage, without what was judged in an earlier conversation."""
        spent: dict[str, float] = {}
        for _, found in self.turns:
            for stage, seconds in found.seconds.items() if found else ():
                spent[stage] = spent.get(stage, 0.0) + seconds
        return spent


def play(judged: Judged, lesson: Lesson, baseline: Baseline, folder: Path, seconds: float = 300.0) -> Played:
    """Play a lesson to its `finish`; `baseline` is what the prompt says, `folder` an empty workspace.

    No other stop counts: a conversation ends when the teacher ends it. Raises LessonFailed where it contradicts the
    lesson, Stop, Cancelled, WorkerError and DeviceError.
    """
    client, environment = TeacherClient(lesson), judged.environment
    world = World(
        workspace=Workspace(folder),
        graph=environment.graph,
        device=environment.device,
        facts=environment.facts,
        sandbox=environment.sandbox,
        baseline=lambda: baseline,
        cancel=threading.Event(),
    )
    profile = CompactProfile(world.workspace, environment.device.target)
    policy = ModelPolicy(client, profile, world, LIMITS, lambda event: None)
    deadline = time.monotonic() + seconds
    steps: list[Step] = []
    while True:
        view = EpisodeView(
            graph=environment.graph,
            target=environment.device.target,
            device=environment.device,
            baseline=baseline,
            steps=tuple(steps),
            remaining=deadline - time.monotonic(),
        )
        move = policy.step(view)
        if move.finished:
            return _played(client, policy, steps, baseline)
        evaluations = judged.evaluate(move.candidates, move.tier)
        steps.append(
            Step(
                turn=len(steps) + 1,
                message=move.message,
                candidates=move.candidates,
                evaluations=evaluations,
                started=0.0,
                ended=0.0,
            )
        )


def _played(client: TeacherClient, policy: ModelPolicy, steps: list[Step], baseline: Baseline) -> Played:
    """Replies joined with what came of them: the observation behind a reply names the candidate."""
    found = {evaluation.candidate: evaluation for step in steps for evaluation in step.evaluations}
    messages = policy.transcript().messages
    replies = [place for place, message in enumerate(messages) if message.role == "assistant"]
    behind = [messages[place + 1].candidate if place + 1 < len(messages) else "" for place in replies]
    turns = tuple((saying, found.get(key)) for saying, key in zip(client.said, behind, strict=True))
    best = Tried(tuple(steps)).finalists()[0]
    played = Played(messages, turns, baseline, best)
    played.check()
    return played


def _ms(evaluation: Evaluation | None) -> float | None:
    return evaluation.timing.candidate_ms if evaluation and evaluation.timing else None
