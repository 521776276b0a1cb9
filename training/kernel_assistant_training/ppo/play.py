"""Plays one episode for training: the agent's own policy runs unchanged, and a scheduler provides replies and
evaluations in rounds."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from random import Random

from kernel_assistant.agent.calls import calls_of, code_of, plan_of
from kernel_assistant.agent.evaluated import NEVER, EvaluatedCandidates
from kernel_assistant.agent.guidance import Guidance
from kernel_assistant.agent.model_policy import ConversationLimits, ModelPolicy
from kernel_assistant.agent.profiles import PROFILES, CompactProfile, FullProfile, ToolProfile
from kernel_assistant.agent.replies.parsed import ParsedCall
from kernel_assistant.agent.stops import Stop
from kernel_assistant.agent.tools import ToolContext
from kernel_assistant.agent.tools.workspace import Workspace
from kernel_assistant.agent.turns import TurnLoop
from kernel_assistant.environment.builds.headers import shipped
from kernel_assistant.errors import UsageError
from kernel_assistant.policy.base import EpisodeView, PolicyAction
from kernel_assistant.policy.client import PolicyError, Request
from kernel_assistant.records import Candidate, Evaluation, Outcome, Stage, Step, StopReason, Tier
from kernel_assistant.records.transcript import Message, Transcript, Usage
from kernel_assistant.sandbox.contract import Sandbox
from kernel_assistant.serving.template import CONTROL_TOKENS
from kernel_assistant_training.decode import GenerationRequest as Prompt
from kernel_assistant_training.evaluation.tasks import Task
from kernel_assistant_training.evaluation.worker import OpenedTask
from kernel_assistant_training.nominal import nominal_baseline, nominal_times
from kernel_assistant_training.ppo.chat.chat_format import ChatFormat, TokenizedConversation
from kernel_assistant_training.ppo.pool.pool import EvaluationRequest
from kernel_assistant_training.ppo.rewards import needs_full, of_episode
from kernel_assistant_training.ppo.rounds import ConversationSlot
from kernel_assistant_training.ppo.trajectory import Trajectory
from kernel_assistant_training.reply import CONTEXT, MOST_REPLY


@dataclass(frozen=True)
class PlayOptions:
    """Options of an episode. It has up to `turns` replies of at most `reply` tokens each, in a context of `context`
    tokens. `scheme` is the reward scheme. Temperature 1 samples from the policy itself; 0 is for evaluations. With the
    `clock` "nominal", conversations contain computed times (`nominal.py`). Raises UsageError if the clock is nominal
    and the scheme rewards speed."""

    scheme: str = "milestone"
    turns: int = 1
    reply: int = MOST_REPLY
    context: int = CONTEXT
    temperature: float = 1.0
    clock: str = "measured"
    profile: str = "compact"

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise UsageError(f"there is no profile {self.profile}", f"use one of {', '.join(PROFILES)}")
        if self.clock == "nominal" and self.scheme != "correctness":
            raise UsageError(
                f"{self.scheme} rewards speed, which a nominal clock does not know", "use --clock measured"
            )


class GrowingProfile(FullProfile):
    """The full profile for training. It does not shorten or change earlier messages. Calls after a reply's first
    evaluation are ignored, because the model wrote them without knowing its result."""

    compacts = False

    def read(self, reply: Message) -> tuple[Message, list[ParsedCall]]:
        kept, calls = super().read(reply)
        ends = [index for index, call in enumerate(calls) if call.name == "evaluate" and not call.problem]
        return kept, calls[: ends[0] + 1] if ends else calls


class RoundClient:
    """A `ModelClient` whose replies a scheduler generates in rounds, with a seed for each episode and turn. `cut_off`:
    whether the last reply reached its token limit."""

    name = "trained"

    def __init__(self, slot: ConversationSlot, speech: ChatFormat, options: PlayOptions, seed: str) -> None:
        self.context_tokens = options.context
        self.spoken = TokenizedConversation(speech)
        self._slot, self._speech, self._options, self._seed = slot, speech, options, seed
        self._turn = 0
        self.cut_off = False

    def complete(self, request: Request, cancelled: Callable[[], bool]) -> Message:
        """Returns the model's next reply. Raises PolicyError if the conversation fills the context."""
        prompt = self.spoken.prompt(request.messages, request.tools)
        most = min(request.max_tokens, self.context_tokens - len(prompt))
        if most < 1:
            raise PolicyError("context", f"the conversation has {len(prompt)} tokens")
        seed = Random(f"{self._seed} {self._turn}").getrandbits(48)
        self._turn += 1
        reply = self._slot.reply(Prompt(prompt, self._options.temperature, seed, most))
        self.spoken.add(reply.ids, reply.logprobs)
        self.cut_off = not reply.ended
        written = reply.ids[:-1] if reply.ended else reply.ids
        return Message(
            role="assistant",
            content=self._speech.text(written),
            token_ids=tuple(reply.ids),
            logprobs=tuple(reply.logprobs),
            finish_reason="stop" if reply.ended else "length",
            usage=Usage(prompt_tokens=len(prompt), completion_tokens=len(reply.ids)),
        )

    def close(self) -> None:
        """Does nothing: there is nothing to release."""


@dataclass(frozen=True)
class IterationContext:
    """The objects and options that all episodes of an iteration share."""

    speech: ChatFormat
    sandbox: Sandbox
    options: PlayOptions
    iteration: int
    run_seed: int
    timed_share: float

    def timed(self, key: str) -> bool:
        """Whether candidates for the task with this key are timed in this iteration."""
        return Random(f"timed {self.run_seed} {self.iteration} {key}").random() < self.timed_share


def play(slot: ConversationSlot, task: Task, opened: OpenedTask, number: int, setting: IterationContext) -> Trajectory:
    """Plays episode `number` of a task to its end; returns its trajectory. `slot` is the episode's connection to the
    scheduler, from which it gets replies and evaluations. `opened` has the facts about the open task for the prompt,
    and `setting` what all episodes of the iteration share.

    If generating or evaluating fails, or another episode raises an exception, that exception is raised here as soon as
    the episode waits for the scheduler."""
    seed = f"{setting.run_seed} {setting.iteration} {task.key} {number}"
    client = RoundClient(slot, setting.speech, setting.options, seed)
    with tempfile.TemporaryDirectory(prefix="kernel-assistant-episode-") as folder:
        if setting.options.clock == "nominal":
            opened = replace(opened, baseline=nominal_baseline(opened.graph))
        episode = _Episode(slot, task, opened, client, setting, Path(folder))
        return episode.trajectory(number)


class _Episode:
    def __init__(
        self,
        slot: ConversationSlot,
        task: Task,
        opened: OpenedTask,
        client: RoundClient,
        setting: IterationContext,
        folder: Path,
    ) -> None:
        self._slot, self._task, self._opened, self._setting = slot, task, opened, setting
        world = ToolContext(
            workspace=Workspace(folder),
            graph=opened.graph,
            device=opened.device,
            facts=opened.facts,
            sandbox=setting.sandbox,
            baseline=lambda: opened.baseline,
            cancel=threading.Event(),
        )
        limits = ConversationLimits(turns=setting.options.turns, reply=setting.options.reply)
        profile = self._profile(world.workspace)
        self._client = client
        self._policy = ModelPolicy(client, profile, world, limits, lambda event: None)
        self._nominal = setting.options.clock == "nominal"
        self._timed = not self._nominal and setting.timed(task.key)
        self._steps: list[Step] = []
        self._void = False

    def _profile(self, workspace: Workspace) -> ToolProfile:
        """Returns the profile of the conversation. For the full profile, first adds the files that its prompt refers to
        to the workspace."""
        if self._setting.options.profile == "compact":
            return CompactProfile(workspace, self._opened.device.target, self._opened.graph)
        workspace.add_reference("module.py", self._task.kernel_task.content)
        workspace.add_reference("graph.txt", self._opened.graph.text())
        for name, text in shipped().items():
            workspace.add_reference(f"include/{name}", text)
        return GrowingProfile(self._task.kernel_task, Guidance())

    def trajectory(self, number: int) -> Trajectory:
        stop = self._play()
        judged = [(step.candidates[0], step.evaluations[0]) for step in self._steps]
        options = self._setting.options
        reward = of_episode(judged, options.scheme, None if self._void else self._confirmed())
        transcript = self._policy.transcript(stop.value)
        best = EvaluatedCandidates(tuple(self._steps)).best_ms
        return Trajectory.of(
            self._client.spoken.said(),
            key=self._task.key,
            seed=number,
            target=self._opened.device.target,
            iteration=self._setting.iteration,
            reward=reward,
            stop=stop.value,
            calls=asked_for(transcript),
            candidates=tuple(candidate.hash() for candidate, _ in judged),
            outcomes=tuple("residual" if one.correct and one.residual else one.outcome.value for _, one in judged),
            best_ms=best if best < NEVER else None,
            eager_ms=self._opened.baseline.eager_ms,
            void=self._void,
            cut_off=self._client.cut_off,
        )

    def _play(self) -> StopReason:
        return TurnLoop(
            task=self._opened,
            policy=self._next,
            judge=self._judged,
            stop_rule=lambda: StopReason.environment_broken if self._void else None,
            baseline=lambda: self._opened.baseline,
            steps=self._steps,
        ).run()

    def _next(self, view: EpisodeView) -> PolicyAction:
        """Returns the policy's next action. A conversation that fills the context ends the episode."""
        try:
            return self._policy.step(view)
        except PolicyError as error:
            raise Stop(StopReason.tokens) from error

    def _judged(self, action: PolicyAction, turn: int) -> Iterator[tuple[Candidate, Evaluation]]:
        """Yields the action's only candidate with its evaluation. The evaluation pool reuses evaluations of repeated
        candidates."""
        (candidate,) = action.candidates
        yield candidate, self._asked(candidate, action.tier)

    def _asked(self, candidate: Candidate, tier: Tier) -> Evaluation:
        asked = EvaluationRequest(self._task, candidate, tier if self._timed else Tier.verify)
        evaluation = self._slot.evaluation(asked)
        self._void |= evaluation is None
        if evaluation is not None and self._nominal:
            return nominal_times(evaluation, self._opened.graph)
        return evaluation or Evaluation(
            candidate=candidate.hash(),
            tier=tier,
            outcome=Outcome.crashed,
            stage=Stage.verify,
            message="the judge was lost",
        )

    def _confirmed(self) -> Evaluation | None:
        """Returns the evaluation of the best candidate in the full tier; None if it cannot raise the reward above that
        of the quick tier."""
        best = EvaluatedCandidates(tuple(step for step in self._steps if not step.evaluations[0].residual)).finalists()[
            :1
        ]
        if not best or not needs_full(self._setting.options.scheme):
            return None
        quick = next(step.evaluations[0] for step in self._steps if step.candidates == tuple(best))
        if quick.timing is None or quick.timing.speedup_vs_eager < 1:
            return None
        return self._asked(best[0], Tier.full)


def asked_for(transcript: Transcript) -> tuple[str, ...]:
    """Returns a word for each reply: "evaluate" (a candidate was evaluated), "finish", "idle" (no call), "schema" (a
    call, plan or directive lines that could not be parsed, or the model wrote another role's turn), or "tool" (another
    tool of the full profile)."""
    known = tuple(tool["function"]["name"] for tool in transcript.tools)
    kinds = []
    for index, message in enumerate(transcript.messages):
        if message.role == "assistant":
            answers = takewhile(lambda one: one.role != "assistant", transcript.messages[index + 1 :])
            judged = any(one.candidate for one in answers)
            forged = any(token in message.content for token in CONTROL_TOKENS)
            kinds.append("schema" if forged else "evaluate" if judged else _asked_without_judge(message, known))
    return tuple(kinds)


def _asked_without_judge(message: Message, tools: Sequence[str]) -> str:
    """Returns the word of `asked_for` for a reply that led to no evaluation. Empty `tools` mean the compact profile."""
    calls = calls_of(message, tools) if tools else calls_of(message, ("evaluate", "finish"))[:1]
    unread = not tools and (code_of(message.content) is not None or plan_of(message.content) is not None)
    if unread or any(call.problem or call.name == "evaluate" for call in calls):
        return "schema"
    if any(call.name == "finish" for call in calls):
        return "finish"
    return "tool" if calls else "idle"
