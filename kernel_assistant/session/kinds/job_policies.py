"""The policies (authors of candidates) of one job: the generator, conversations with a language model, or a model
followed by the generator."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from kernel_assistant.agent.budget import Budget, Phase
from kernel_assistant.agent.evaluator import Evaluator
from kernel_assistant.agent.guidance import Guidance, guidance_for
from kernel_assistant.agent.model_policy import ConversationLimits, ModelPolicy
from kernel_assistant.agent.profiles import CompactProfile, FullProfile
from kernel_assistant.agent.prompts import SKILL, skill_text
from kernel_assistant.agent.shared import SharedEnvironment
from kernel_assistant.agent.tools import ToolContext
from kernel_assistant.agent.tools.workspace import Workspace
from kernel_assistant.environment.builds.headers import shipped
from kernel_assistant.environment.session import Environment
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.events import AnyEvent, Progress, Warned
from kernel_assistant.policy.base import EpisodeView, Policy, PolicyAction
from kernel_assistant.policy.bill import Bill
from kernel_assistant.policy.connect import ModelConnection, connect
from kernel_assistant.records import KernelTask, OpGraph, Spending, Step, Trajectory
from kernel_assistant.records.transcript import Message
from kernel_assistant.serving.errors import NoModelError
from kernel_assistant.serving.registry import SHIPPED_NAME, find, price_of
from kernel_assistant.session.hosting.jobs import JobServices
from kernel_assistant.store import JobOptions, Store

#: Share of the budget for a model that is followed by the generator. A small model needs less.
MODEL_SHARE, SMALL_SHARE = 0.7, 0.5
#: A model's phase ends after this many evaluations without a better candidate.
PATIENCE, SMALL_PATIENCE = 24, 8
#: The number of conversations with a small model. Each is short, and the best candidate of all counts.
ATTEMPTS = 8
GENERATOR = "generator"


class JobPolicies:
    """The policies of one job and the environment that they share. They run in phases, one after another, each with a
    budget. `close` releases the model clients."""

    def __init__(
        self,
        task: KernelTask,
        options: JobOptions,
        environment: Environment,
        services: JobServices,
        emit: Callable[[AnyEvent], None],
        cancel: threading.Event,
    ) -> None:
        self._task, self._options, self._environment, self._services = task, options, environment, services
        self._emit, self._cancel = emit, cancel
        self._shared = SharedEnvironment(environment)
        self._open: list[StoredConversation] = []
        self._bill: Bill | None = None

    @property
    def judging(self) -> Evaluator:
        return self._shared

    @property
    def spent(self) -> Spending | None:
        """The tokens and money that the model has cost so far; None if only the generator is used."""
        return None if self._bill is None else self._bill.spent

    def phases(self, seconds: float) -> list[Phase]:
        """Returns the phases of the search in order. `seconds` is the time limit of the whole search. Raises
        MissingError or UsageError if a model is required but cannot be used."""
        connection = self._connection()
        earlier = self._services.resume_steps
        if connection is None:
            return [Phase((self._generator(),), self._generators_budget(seconds), earlier)]
        # Without an endpoint the model is a small one that runs in a process of ours.
        alone, small = self._options.policy == "model", connection.endpoint is None
        share = SMALL_SHARE if small else MODEL_SHARE
        budget = Budget(
            seconds=seconds if alone else share * seconds,
            patience=SMALL_PATIENCE if small else PATIENCE,
            device_seconds=self._options.device_time or float("inf"),
        )
        models = self._models(connection)
        says = _says(connection.name, len(models))
        model = Phase(models, budget, tuple(step for step in earlier if not _is_generators(step)), says)
        if alone:
            return [model]
        rest = tuple(step for step in earlier if _is_generators(step))
        says = "the generator writes kernels"
        return [model, Phase((self._generator(),), self._generators_budget(seconds), rest, says)]

    def keep(self, trajectory: Trajectory) -> None:
        """Stores the messages of all conversations with models, with the stop reason of `trajectory`."""
        for policy in self._open:
            policy.keep(trajectory.stop_reason.value)

    def close(self) -> None:
        for policy in self._open:
            policy.close()

    def _connection(self) -> ModelConnection | None:
        """Connects to the model and prepares the account of its cost. Returns None if only the generator is used:
        because the user chose it or, with the policy "auto", because no model can be used."""
        if self._options.policy == GENERATOR:
            return None
        if self._options.policy == "auto" and not has_model(self._options, self._services):
            self._emit(Progress(phase="search", message="no model is installed: the generator writes kernels alone"))
            return None
        try:
            connection = connect(self._services.settings, self._options.endpoint, self._options.model)
            self._bill = self._opened_bill(connection)
            return connection
        except KernelAssistantError as error:
            if self._options.policy == "model":
                raise
            self._emit(Warned(message=f"the model cannot be used, the generator writes kernels alone: {error.cause}"))
            return None

    def _opened_bill(self, connection: ModelConnection) -> Bill:
        """Returns the account of the model's cost, which starts with the requests and tokens that the job spent before
        a crash. Raises UsageError if the user limits the money and no price is known."""
        options = self._options
        price = price_of(find(connection.word, self._services.settings), options.price, options.money)
        earlier = [
            reply.usage for one in self._services.store.transcripts.of(self._services.job) for reply in one.replies
        ]
        before = Spending(
            requests=len(earlier),
            tokens_in=sum(usage.prompt_tokens for usage in earlier),
            tokens_out=sum(usage.completion_tokens for usage in earlier),
        )
        return Bill(price, options.money, before)

    def _generators_budget(self, seconds: float) -> Budget:
        return Budget(seconds=seconds, turns=self._options.turns)

    def _generator(self) -> StoredPolicy:
        return StoredPolicy(generator(), self._services.store, self._services.job)

    def _models(self, connection: ModelConnection) -> tuple[StoredConversation, ...]:
        guidance = guidance_for(Path(self._task.path))
        first = self._services.store.transcripts.count(self._services.job)
        asked = self._options.episodes
        for number in range(first, first + (ATTEMPTS if connection.endpoint is None and asked == 1 else asked)):
            policy = self._model(connection, guidance, number)
            self._open.append(StoredConversation(policy, self._services.store, self._services.job, number))
        return tuple(self._open)

    def _model(self, connection: ModelConnection, guidance: Guidance, number: int) -> ModelPolicy:
        workspace = Workspace(self._services.folder / f"workspace-{number + 1}")
        target = self._environment.device.target
        workspace.add_reference("module.py", self._task.content)
        workspace.add_reference("graph.txt", self._environment.graph.text())
        workspace.add_reference(SKILL.name, skill_text())
        for name, text in shipped().items():
            workspace.add_reference(f"include/{name}", text)
        world = ToolContext(
            workspace=workspace,
            graph=self._environment.graph,
            device=self._environment.device,
            facts=self._environment.facts,
            sandbox=self._environment.sandbox,
            baseline=lambda: self._shared.baseline(compiled=True),
            cancel=self._cancel,
            counters=self._shared.counters,
            device_lock=self._shared.lock,
        )
        compact = connection.compact
        profile = CompactProfile(workspace, target, world.graph) if compact else FullProfile(self._task, guidance)
        most = self._options.turns
        turns = min(most, guidance.turns or most, connection.turns or most)
        limits = ConversationLimits(turns=turns, tokens=self._options.tokens)
        client, user_messages = connection.client(number), self._services.said
        return ModelPolicy(client, profile, world, limits, self._emit, user_messages, number + 1, self._bill)


def _says(name: str, attempts: int) -> str:
    who = "the model that comes with the package" if name == SHIPPED_NAME else f"model {name}"
    return f"{who} writes kernels" + (f", {attempts} attempts at once" if attempts > 1 else "")


def generator() -> Policy:
    from kernel_assistant.policy.generator import GeneratorPolicy

    return GeneratorPolicy()


def has_model(options: JobOptions, services: JobServices) -> bool:
    """Whether a model is set up: the job's options or the settings name one, or one came with the package."""
    try:
        find(options.endpoint or options.model, services.settings)
    except NoModelError:
        return False
    return True


def _is_generators(step: Step) -> bool:
    return any(candidate.origin == GENERATOR for candidate in step.candidates)


class StoredPolicy:
    """Wraps a policy and stores the episode's steps: at each call of `step`, those that have finished since the last
    call."""

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
    """Wraps a conversation with a model, and stores its messages after every step. `number` counts the job's
    conversations from 0."""

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
