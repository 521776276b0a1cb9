"""Plays a lesson (planned replies, deliberate mistakes included) as one conversation with the real environment."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path

from kernel_assistant.agent.evaluated import EvaluatedCandidates
from kernel_assistant.agent.model_policy import ConversationLimits, ModelPolicy
from kernel_assistant.agent.profiles import CompactProfile
from kernel_assistant.agent.stops import Stop
from kernel_assistant.agent.tools import ToolContext
from kernel_assistant.agent.tools.workspace import Workspace
from kernel_assistant.agent.turns import TurnLoop
from kernel_assistant.records import Baseline, Candidate, Evaluation, Step, StopReason
from kernel_assistant.records.transcript import Message
from kernel_assistant_training.episodes.client import LessonClient
from kernel_assistant_training.evaluation.evaluation_cache import EvaluationCache
from kernel_assistant_training.lessons.lesson import Lesson, PlannedReply, ReplyKind

LIMITS = ConversationLimits(turns=12)
#: A turn that is slower than the best of the conversation by more than this factor is not learned.
SLOWER = 1.03


@dataclass(frozen=True)
class PlayedLesson:
    """A conversation in which every reply had the planned effect. `turns` are pairs of a reply and its evaluation, None
    for a reply without a candidate. `best` is the fastest correct candidate."""

    messages: tuple[Message, ...]
    turns: tuple[tuple[PlannedReply, Evaluation | None], ...]
    baseline: Baseline
    best: Candidate

    @property
    def best_ms(self) -> float:
        """The time of the fastest correct candidate in milliseconds; every lesson has a correct candidate."""
        return min(ms for _, evaluation in self.turns if (ms := _ms(evaluation)) is not None)

    @property
    def best_source(self) -> str:
        key = self.best.hash()
        return next(
            reply.source for reply, evaluation in self.turns if evaluation is not None and evaluation.candidate == key
        )

    def losses(self) -> list[bool]:
        """Returns for each reply whether the loss includes it. The loss includes the reply `finish`, and correct
        replies without a deliberate mistake that are at most 3% slower than the best."""
        best = self.best_ms
        return [
            reply.kind is ReplyKind.finish
            or ((ms := _ms(evaluation)) is not None and ms <= SLOWER * best and not reply.fault)
            for reply, evaluation in self.turns
        ]

    def seconds(self) -> dict[str, float]:
        """Returns stage → seconds that the evaluations of all turns took; evaluations from the cache count as 0."""
        spent: dict[str, float] = {}
        for _, evaluation in self.turns:
            for stage, seconds in evaluation.seconds.items() if evaluation else ():
                spent[stage] = spent.get(stage, 0.0) + seconds
        return spent


def play(
    judged: EvaluationCache, lesson: Lesson, baseline: Baseline, folder: Path, seconds: float = 300.0
) -> PlayedLesson:
    """Plays a lesson up to its reply `finish`. `judged` evaluates the candidates of the open task. The prompt states
    `baseline`; `folder` is an empty folder for the conversation's files.

    `seconds` is a time limit. Raises Stop if the conversation ends for another reason than the reply `finish`,
    LessonFailed if an evaluation contradicts the lesson, and Cancelled, WorkerError and DeviceError as the environment
    does.
    """
    client, environment = LessonClient(lesson), judged.environment
    world = ToolContext(
        workspace=Workspace(folder),
        graph=environment.graph,
        device=environment.device,
        facts=environment.facts,
        sandbox=environment.sandbox,
        baseline=lambda: baseline,
        cancel=threading.Event(),
    )
    profile = CompactProfile(world.workspace, environment.device.target, world.graph)
    policy = ModelPolicy(client, profile, world, LIMITS, lambda event: None)
    began, steps = time.monotonic(), list[Step]()
    reason = TurnLoop(
        task=environment,
        policy=policy.step,
        judge=lambda action, _: zip(action.candidates, judged.evaluate(action.candidates, action.tier), strict=True),
        stop_rule=lambda: None,
        baseline=lambda: baseline,
        steps=steps,
        seconds=seconds,
        now=lambda: time.monotonic() - began,
    ).run()
    if reason is not StopReason.finished:
        raise Stop(reason)
    return _played(client, policy, steps, baseline)


def _played(client: LessonClient, policy: ModelPolicy, steps: list[Step], baseline: Baseline) -> PlayedLesson:
    """Returns the played lesson, with each reply paired with its evaluation. The message after a reply names the
    candidate that was evaluated."""
    evaluations = {evaluation.candidate: evaluation for step in steps for evaluation in step.evaluations}
    messages = policy.transcript().messages
    indices = [index for index, message in enumerate(messages) if message.role == "assistant"]
    behind = [messages[index + 1].candidate if index + 1 < len(messages) else "" for index in indices]
    turns = tuple((reply, evaluations.get(key)) for reply, key in zip(client.said, behind, strict=True))
    best = EvaluatedCandidates(tuple(steps)).finalists()[0]
    return PlayedLesson(messages, turns, baseline, best)


def _ms(evaluation: Evaluation | None) -> float | None:
    return evaluation.timing.candidate_ms if evaluation and evaluation.timing else None
