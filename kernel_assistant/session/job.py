"""One job from task to result: opens the environment, plays an episode or checks one candidate, leaves artifacts."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec

from kernel_assistant.agent.loop import Episode
from kernel_assistant.apply import export_model_new
from kernel_assistant.environment.session import Environment, open_environment
from kernel_assistant.errors import Cancelled, InternalError, MissingError, UsageError, WorkerError
from kernel_assistant.events import AnyEvent, CandidateEvaluated, Progress, Warned
from kernel_assistant.records import (
    Candidate,
    Evaluation,
    FreeWin,
    JobOutcome,
    KernelTask,
    OptimizeResult,
    StopReason,
    Tier,
    Trajectory,
)
from kernel_assistant.session.applied import time_applied
from kernel_assistant.session.applied_timing import APPLIED_FILE, write_applied
from kernel_assistant.session.artifacts import write_result
from kernel_assistant.session.check_job import check_applied
from kernel_assistant.session.edits import place_of
from kernel_assistant.session.free_wins import FreeWinStep, reserved_seconds
from kernel_assistant.session.freeform_job import check_freeform, checked
from kernel_assistant.session.jobs import JobServices
from kernel_assistant.session.lines_job import profile_lines
from kernel_assistant.session.outcome import best_candidate, best_of, outcome_of
from kernel_assistant.session.players import Players
from kernel_assistant.store import JobKind, JobOptions
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.targets.cuda import gpus
from kernel_assistant.targets.detect import detect

Emit = Callable[[AnyEvent], None]
_log = logging.getLogger(__name__)


def lane_of(task: KernelTask) -> str:
    """The device whose jobs run one after another, "cpu:0" or "cuda:1"; the idle one of several.

    Raises MissingError where there is no such device.
    """
    device = detect(task.target)
    return f"{device.target}:{device.index}"


def device_of(lane: str) -> DeviceFacts:
    """Inverse of `lane_of`. Raises MissingError for a device that has gone since."""
    target, _, index = lane.partition(":")
    if target == "cpu":
        return detect("cpu")
    for device in gpus():
        if device.index == int(index):
            return device
    raise MissingError(f"GPU {index} is gone", "check nvidia-smi, then optimize again")


def run_job(
    task: KernelTask,
    options: JobOptions,
    *,
    emit: Emit,
    cancel: threading.Event,
    services: JobServices,
) -> OptimizeResult:
    """Run one job. Raises UsageError, MissingError and InternalError; a bad kernel is in the result."""
    started = time.monotonic()
    device = device_of(services.device)
    emit(Progress(phase="open", message=f"starting {options.python}"))
    if options.kind is JobKind.lines:
        return profile_lines(task, options, device, emit=emit, cancel=cancel, services=services)
    if options.freeform is not None:
        return check_freeform(task, options, device, emit=emit, cancel=cancel, services=services)
    if options.applied is not None:
        return check_applied(task, options, device, emit=emit, cancel=cancel, services=services)
    with (
        services.workers.lend(options.python, device) as worker,
        open_environment(
            task,
            device=device,
            worker=worker,
            sandbox_mode=options.sandbox,
            cache_dir=services.settings.cache_dir,
            cancel=cancel,
            emit=emit,
        ) as environment,
    ):
        run = _Run(task, options, environment, emit, cancel, services, started)
        return run.optimize() if options.kind is JobKind.optimize else run.check()


class _Run:
    """The parts of one job that share its environment."""

    def __init__(
        self,
        task: KernelTask,
        options: JobOptions,
        environment: Environment,
        emit: Emit,
        cancel: threading.Event,
        services: JobServices,
        started: float,
    ) -> None:
        self._task = task
        self._options = options
        self._environment = environment
        self._emit = emit
        self._cancel = cancel
        self._services = services
        self._started = started

    def optimize(self) -> OptimizeResult:
        """Play an episode with the chosen policy."""
        seconds = self._options.budget - reserved_seconds(self._options)
        playing = Players(self._task, self._options, self._environment, self._services, self._emit, self._cancel)
        with closing(playing) as players:
            phases = players.phases(seconds)
            trajectory = Episode(players.judging, phases, self._emit, self._cancel).run()
            players.keep(trajectory)
        self._services.store.add_trajectory(self._services.job, trajectory)
        candidate, evaluation = best_candidate(trajectory)
        artifacts = self._write(trajectory, candidate, trajectory.final or evaluation)
        outcome = outcome_of(trajectory)
        if candidate is not None and outcome is JobOutcome.improved:
            outcome = self._offer(artifacts)
        free = FreeWinStep(self._environment, reserved_seconds(self._options), self._emit)
        wanted = self._options.free_wins and outcome not in (JobOutcome.cancelled, JobOutcome.failed)
        if wanted and not free.run():
            outcome = JobOutcome.cancelled
        return self._result(
            outcome=outcome,
            evaluation=trajectory.final,
            artifacts=artifacts,
            policy=trajectory.policy,
            evaluations=len({one.candidate for step in trajectory.steps for one in step.evaluations}),
            stop_reason=trajectory.stop_reason,
            free_wins=tuple(free.wins),
        )

    def check(self) -> OptimizeResult:
        """Send one given candidate through the whole gate."""
        candidate = self._options.candidate
        if candidate is None:
            raise InternalError("a job to check a candidate came without one")
        self._emit(Progress(phase="search", message=f"checking {len(candidate.sources)} source files"))
        (evaluation,) = self._environment.evaluate((candidate,), Tier.full)
        self._emit(
            CandidateEvaluated(turn=0, schedule=candidate.plan.schedule, origin=candidate.origin, evaluation=evaluation)
        )
        return self._result(
            outcome=checked(evaluation),
            evaluation=evaluation,
            artifacts=self._write(None, candidate, evaluation),
            policy=candidate.origin,
            evaluations=1,
            stop_reason=StopReason.finished,
        )

    def _offer(self, artifacts: dict[str, str]) -> JobOutcome:
        """Time the file with its kernels; a gain that the guard eats is none. Adds what it writes to `artifacts`."""
        folder = self._services.folder / "result"
        self._emit(Progress(phase="apply", message="timing the edited file, guard and operator included"))
        try:
            timing = time_applied(self._environment, self._task, folder, self._services.folder / "applied")
        except UsageError as error:
            self._emit(Warned(message=f"the kernels cannot be applied to the file: {error.cause}"))
            return JobOutcome.improved
        except WorkerError as error:
            # The confirmed result stands; `apply` says that the edited file was not timed.
            _log.error("job %s: timing the edited file: %s\n%s", self._services.job, error.cause, error.detail)
            self._emit(Warned(message=f"the edited file could not be timed: {error.cause}"))
            return JobOutcome.improved
        except Cancelled:
            return JobOutcome.cancelled
        artifacts[APPLIED_FILE] = write_applied(folder, timing)
        self._export(folder, artifacts)
        if timing.worth:
            return JobOutcome.improved
        self._emit(Warned(message=f"the kernels gain nothing once they are in the file ({timing.summary()})"))
        return JobOutcome.no_measurable_gain

    def _export(self, folder: Path, artifacts: dict[str, str]) -> None:
        """Nobody loses a confirmed result because it cannot be written in another form as well."""
        try:
            artifacts["model_new.py"] = str(export_model_new(folder, folder))
        except UsageError as error:
            _log.info("job %s: no model_new.py: %s", self._services.job, error.cause)
        except Exception as error:  # noqa: BLE001 - whatever it is, the result is what counts
            _log.exception("job %s: model_new.py", self._services.job)
            self._emit(Warned(message=f"model_new.py could not be written ({error}); the result stands"))

    def _write(
        self, trajectory: Trajectory | None, candidate: Candidate | None, evaluation: Evaluation | None
    ) -> dict[str, str]:
        built = candidate is not None and evaluation is not None and evaluation.correct
        return write_result(
            self._services.folder / "result",
            task=msgspec.structs.replace(self._task, class_name=place_of(self._task, self._options).class_name),
            graph=self._environment.graph,
            device=self._environment.device,
            facts=self._environment.facts,
            trajectory=trajectory,
            candidate=candidate,
            evaluation=evaluation,
            binaries=self._environment.binaries(candidate) if built and candidate is not None else {},
        )

    def _result(
        self,
        *,
        outcome: JobOutcome,
        evaluation: Evaluation | None,
        artifacts: dict[str, str],
        policy: str,
        evaluations: int,
        stop_reason: StopReason,
        free_wins: tuple[FreeWin, ...] = (),
    ) -> OptimizeResult:
        return OptimizeResult(
            task=self._task.name,
            target=self._task.target,
            device=self._environment.device.name,
            outcome=outcome,
            best=best_of(evaluation, policy, tuple(sorted(artifacts.values()))),
            evaluations=evaluations,
            seconds=time.monotonic() - self._started,
            stop_reason=stop_reason.value,
            artifacts={"job": self._services.job, **artifacts},
            free_wins=free_wins,
        )
