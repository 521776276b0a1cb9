"""Who plays a job's episode: the generator, conversations with a model, or first these and then it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from kernel_assistant.agent.budget import Budget
from kernel_assistant.agent.guidance import Guidance, guidance_for
from kernel_assistant.agent.judging import Judging
from kernel_assistant.agent.loop import Phase
from kernel_assistant.agent.model_policy import Limits, ModelPolicy
from kernel_assistant.agent.profiles import CompactProfile, FullProfile
from kernel_assistant.agent.shared import SharedEnvironment
from kernel_assistant.agent.tools import World
from kernel_assistant.agent.workspace import Workspace
from kernel_assistant.environment.headers import shipped
from kernel_assistant.environment.session import Environment
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.events import AnyEvent, Progress, Warned
from kernel_assistant.policy.base import Policy
from kernel_assistant.policy.connect import Connection, connect
from kernel_assistant.records import KernelTask, Step, Trajectory
from kernel_assistant.serving.errors import NoModelError
from kernel_assistant.serving.registry import find
from kernel_assistant.session.jobs import JobServices
from kernel_assistant.session.policies import Recorded, Transcribed
from kernel_assistant.store import JobOptions

#: Of the budget, what a model may take when the generator plays after it; a small one is done sooner.
MODEL_SHARE, SMALL_SHARE = 0.7, 0.5
#: Evaluations without a better candidate: a model needs more tries than a search by measurement.
PATIENCE, SMALL_PATIENCE = 24, 8
#: Conversations with a small model: each is short, and the best of all counts.
ATTEMPTS = 8
GENERATOR = "generator"


class Players:
    """The phases of one job, and the environment as they share it. `close` gives clients back."""

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
        self._open: list[Transcribed] = []

    @property
    def judging(self) -> Judging:
        return self._shared

    def phases(self, seconds: float) -> list[Phase]:
        """What plays, in order. Raises MissingError and UsageError where a model is asked for and is not there."""
        connection = self._connection()
        earlier = self._services.resume_steps
        if connection is None:
            return [Phase((self._generator(),), Budget(seconds=seconds), earlier)]
        # Without an endpoint the model is a small one in a process of ours.
        alone, small = self._options.policy == "model", connection.endpoint is None
        share = SMALL_SHARE if small else MODEL_SHARE
        budget = Budget(
            seconds=seconds if alone else share * seconds,
            patience=SMALL_PATIENCE if small else PATIENCE,
            device_seconds=self._options.device_time or float("inf"),
        )
        models = self._models(connection)
        says = f"model {connection.name} plays" + (f": {len(models)} conversations" if len(models) > 1 else "")
        model = Phase(models, budget, tuple(step for step in earlier if not _is_generators(step)), says)
        if alone:
            return [model]
        rest = tuple(step for step in earlier if _is_generators(step))
        return [model, Phase((self._generator(),), Budget(seconds=seconds), rest, "the generator plays")]

    def keep(self, trajectory: Trajectory) -> None:
        """What was said, and how it ended."""
        for policy in self._open:
            policy.keep(trajectory.stop_reason.value)

    def close(self) -> None:
        for policy in self._open:
            policy.close()

    def _connection(self) -> Connection | None:
        """None: the generator plays alone."""
        if self._options.policy == GENERATOR:
            return None
        if self._options.policy == "auto" and not has_model(self._options, self._services):
            self._emit(Progress(phase="search", message="no model is installed: the generator plays alone"))
            return None
        try:
            return connect(self._services.settings, self._options.endpoint, self._options.model)
        except KernelAssistantError as error:
            if self._options.policy == "model":
                raise
            self._emit(Warned(message=f"the model cannot be used, the generator plays alone: {error.cause}"))
            return None

    def _generator(self) -> Recorded:
        return Recorded(generator(), self._services.store, self._services.job)

    def _models(self, connection: Connection) -> tuple[Transcribed, ...]:
        guidance = guidance_for(Path(self._task.path))
        first = self._services.store.transcripts.count(self._services.job)
        asked = self._options.episodes
        for number in range(first, first + (ATTEMPTS if connection.endpoint is None and asked == 1 else asked)):
            policy = self._model(connection, guidance, number)
            self._open.append(Transcribed(policy, self._services.store, self._services.job, number))
        return tuple(self._open)

    def _model(self, connection: Connection, guidance: Guidance, number: int) -> ModelPolicy:
        workspace = Workspace(self._services.folder / f"workspace-{number + 1}")
        target = self._environment.device.target
        workspace.add_reference("module.py", self._task.content)
        workspace.add_reference("graph.txt", self._environment.graph.text())
        for name, text in shipped().items():
            workspace.add_reference(f"include/{name}", text)
        world = World(
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
        profile = CompactProfile(workspace, target) if compact else FullProfile(self._task, guidance)
        most = self._options.turns
        turns = min(most, guidance.turns or most, connection.turns or most)
        limits = Limits(turns=turns, tokens=self._options.tokens)
        client, said = connection.client(number), self._services.said
        return ModelPolicy(client, profile, world, limits, self._emit, said, number + 1)


def generator() -> Policy:
    from kernel_assistant.policy.generator import GeneratorPolicy

    return GeneratorPolicy()


def has_model(options: JobOptions, services: JobServices) -> bool:
    """Whether the user has named one anywhere."""
    try:
        find(options.endpoint or options.model, services.settings)
    except NoModelError:
        return False
    return True


def _is_generators(step: Step) -> bool:
    return any(candidate.origin == GENERATOR for candidate in step.candidates)
