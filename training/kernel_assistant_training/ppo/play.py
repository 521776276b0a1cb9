"""One episode for training: the agent's own policy in the compact profile, at a table."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from random import Random

from kernel_assistant.agent.calls import Call, calls_of, code_of, plan_of
from kernel_assistant.agent.guidance import Guidance
from kernel_assistant.agent.model_policy import Limits, ModelPolicy
from kernel_assistant.agent.profiles import PROFILES, CompactProfile, FullProfile, Profile
from kernel_assistant.agent.stops import Stop
from kernel_assistant.agent.tools import World
from kernel_assistant.agent.tried import Tried
from kernel_assistant.agent.workspace import Workspace
from kernel_assistant.environment.headers import shipped
from kernel_assistant.errors import UsageError
from kernel_assistant.policy.base import EpisodeView, Move
from kernel_assistant.policy.client import PolicyError, Request
from kernel_assistant.records import Candidate, Evaluation, Outcome, Stage, Step, StopReason, Tier
from kernel_assistant.records.transcript import Message, Transcript, Usage
from kernel_assistant.sandbox.contract import Sandbox
from kernel_assistant.serving.template import CONTROL_TOKENS
from kernel_assistant_training.decode import Asked as Prompt
from kernel_assistant_training.nominal import nominal_baseline, nominal_times
from kernel_assistant_training.ppo.pool import Asked
from kernel_assistant_training.ppo.pool_worker import Opened
from kernel_assistant_training.ppo.rewards import needs_full, of_episode
from kernel_assistant_training.ppo.speech import Speech, Spoken
from kernel_assistant_training.ppo.table import Seat
from kernel_assistant_training.ppo.tasks import Task
from kernel_assistant_training.ppo.trajectory import Trajectory
from kernel_assistant_training.reply import MOST_REPLY
from kernel_assistant_training.tokenizer import CONTEXT

#: Seconds that no episode takes: it ends by its turns.
FOR_EVER = 1e9


@dataclass(frozen=True)
class PlayOptions:
    """`turns` replies an episode, of `reply` tokens at most, in `context` tokens; `scheme` of the reward. Temperature 1
    samples the policy itself; 0 is for evaluations. With the `clock` "nominal" conversations name times that nobody
    measured (`nominal.py`): UsageError for a scheme that rewards speed."""

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
    """The full profile for training. What was said stays as it was sampled, and a reply's calls end with the first
    evaluation: what stands behind it was written without its result."""

    compacts = False

    def read(self, reply: Message) -> tuple[Message, list[Call]]:
        kept, calls = super().read(reply)
        ends = [place for place, call in enumerate(calls) if call.name == "evaluate" and not call.problem]
        return kept, calls[: ends[0] + 1] if ends else calls


class TableClient:
    """See `ModelClient`. Replies are those of a table's rounds, seeded by episode and turn. `cut_off` says that the
    last one was longer than it may be."""

    name = "trained"

    def __init__(self, seat: Seat, speech: Speech, options: PlayOptions, seed: str) -> None:
        self.context_tokens = options.context
        self.spoken = Spoken(speech)
        self._seat, self._speech, self._options, self._seed = seat, speech, options, seed
        self._turn = 0
        self.cut_off = False

    def complete(self, request: Request, cancelled: Callable[[], bool]) -> Message:
        """Raises PolicyError where the conversation is as long as the context."""
        prompt = self.spoken.prompt(request.messages, request.tools)
        most = min(request.max_tokens, self.context_tokens - len(prompt))
        if most < 1:
            raise PolicyError("context", f"the conversation has {len(prompt)} tokens")
        seed = Random(f"{self._seed} {self._turn}").getrandbits(48)
        self._turn += 1
        reply = self._seat.reply(Prompt(prompt, self._options.temperature, seed, most))
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
        """Nothing to give back."""


@dataclass(frozen=True)
class Setting:
    """What the episodes of an iteration share."""

    speech: Speech
    sandbox: Sandbox
    options: PlayOptions
    iteration: int
    run_seed: int


def play(seat: Seat, task: Task, opened: Opened, number: int, setting: Setting) -> Trajectory:
    """Episode `number` of a task, to its end. Raises what the table raises."""
    seed = f"{setting.run_seed} {setting.iteration} {task.key} {number}"
    client = TableClient(seat, setting.speech, setting.options, seed)
    with tempfile.TemporaryDirectory(prefix="kernel-assistant-episode-") as folder:
        if setting.options.clock == "nominal":
            opened = replace(opened, baseline=nominal_baseline(opened.graph))
        episode = _Episode(seat, task, opened, client, setting, Path(folder))
        return episode.trajectory(number)


class _Episode:
    def __init__(
        self, seat: Seat, task: Task, opened: Opened, client: TableClient, setting: Setting, folder: Path
    ) -> None:
        self._seat, self._task, self._opened, self._setting = seat, task, opened, setting
        world = World(
            workspace=Workspace(folder),
            graph=opened.graph,
            device=opened.device,
            facts=opened.facts,
            sandbox=setting.sandbox,
            baseline=lambda: opened.baseline,
            cancel=threading.Event(),
        )
        limits = Limits(turns=setting.options.turns, reply=setting.options.reply)
        profile = self._profile(world.workspace)
        self._client = client
        self._policy = ModelPolicy(client, profile, world, limits, lambda event: None)
        self._steps: list[Step] = []
        self._void = False

    def _profile(self, workspace: Workspace) -> Profile:
        """With the files that it tells of."""
        if self._setting.options.profile == "compact":
            return CompactProfile(workspace, self._opened.device.target)
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
        best = Tried(tuple(self._steps)).best_ms
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
            best_ms=best if best < FOR_EVER else None,
            eager_ms=self._opened.baseline.eager_ms,
            void=self._void,
            cut_off=self._client.cut_off,
        )

    def _play(self) -> StopReason:
        try:
            while not self._void:
                move = self._policy.step(self._view())
                if move.finished:
                    return StopReason.finished
                self._judge(move)
        except Stop as stop:
            return stop.reason
        except PolicyError:
            return StopReason.tokens
        return StopReason.environment_broken

    def _judge(self, move: Move) -> None:
        """What was tried before is looked up; the table asks for each candidate once."""
        (candidate,) = move.candidates
        found = self._asked(candidate, move.tier)
        self._steps.append(
            Step(
                turn=len(self._steps) + 1,
                message="",
                candidates=move.candidates,
                evaluations=(found,),
                started=0.0,
                ended=0.0,
            )
        )

    def _asked(self, candidate: Candidate, tier: Tier) -> Evaluation:
        found = self._seat.evaluation(Asked(self._task, candidate, tier))
        self._void |= found is None
        if found is not None and self._setting.options.clock == "nominal":
            return nominal_times(found, self._opened.graph)
        return found or Evaluation(
            candidate=candidate.hash(),
            tier=tier,
            outcome=Outcome.crashed,
            stage=Stage.verify,
            message="the judge was lost",
        )

    def _confirmed(self) -> Evaluation | None:
        """The full protocol's word on the best candidate, where it can earn more than the quick tier's."""
        best = Tried(tuple(step for step in self._steps if not step.evaluations[0].residual)).finalists()[:1]
        if not best or not needs_full(self._setting.options.scheme):
            return None
        quick = next(step.evaluations[0] for step in self._steps if step.candidates == tuple(best))
        if quick.timing is None or quick.timing.speedup_vs_eager < 1:
            return None
        return self._asked(best[0], Tier.full)

    def _view(self) -> EpisodeView:
        opened = self._opened
        return EpisodeView(
            graph=opened.graph,
            target=opened.device.target,
            device=opened.device,
            baseline=opened.baseline,
            steps=tuple(self._steps),
            remaining=FOR_EVER,
        )


def asked_for(transcript: Transcript) -> tuple[str, ...]:
    """For each reply: "evaluate" (something was judged), "finish", "idle" (nothing was asked), "schema" (a call, a plan
    or a head of directives that could not be read, or a turn of somebody else's that it wrote), or "tool" (another one
    of the full profile's)."""
    known = tuple(tool["function"]["name"] for tool in transcript.tools)
    found = []
    for place, message in enumerate(transcript.messages):
        if message.role == "assistant":
            answers = takewhile(lambda one: one.role != "assistant", transcript.messages[place + 1 :])
            judged = any(one.candidate for one in answers)
            forged = any(token in message.content for token in CONTROL_TOKENS)
            found.append("schema" if forged else "evaluate" if judged else _asked_without_judge(message, known))
    return tuple(found)


def _asked_without_judge(message: Message, tools: Sequence[str]) -> str:
    """Without `tools` it is of the compact profile."""
    calls = calls_of(message, tools) if tools else calls_of(message, ("evaluate", "finish"))[:1]
    unread = not tools and (code_of(message.content) is not None or plan_of(message.content) is not None)
    if unread or any(call.problem or call.name == "evaluate" for call in calls):
        return "schema"
    if any(call.name == "finish" for call in calls):
        return "finish"
    return "tool" if calls else "idle"
