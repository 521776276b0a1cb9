"""Runs one job: opens the environment, runs an episode or checks one candidate, and writes artifacts."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import msgspec

from kernel_assistant.agent.loop import Episode
from kernel_assistant.agent.search import tell, tell_best
from kernel_assistant.apply import export_model_new
from kernel_assistant.environment.job_clock import JobClock
from kernel_assistant.environment.session import Environment, open_environment
from kernel_assistant.environment.stage_messages import of_slow_opening
from kernel_assistant.errors import (
    Cancelled,
    DeviceError,
    InternalError,
    MissingError,
    OutOfTime,
    StoreError,
    UsageError,
    WorkerError,
)
from kernel_assistant.events import AnyEvent, BestImproved, CandidateEvaluated, Progress, Warned
from kernel_assistant.records import (
    Candidate,
    Evaluation,
    FreeWin,
    Gain,
    JobOutcome,
    KernelTask,
    OptimizeResult,
    ProgramMode,
    Spending,
    StopReason,
    Trajectory,
)
from kernel_assistant.records.free_win import FLOAT32
from kernel_assistant.session.artifacts import result_files, write_files
from kernel_assistant.session.edits import place_of
from kernel_assistant.session.hosting.jobs import JobServices
from kernel_assistant.session.kinds.ahead import Ahead, imported_ahead
from kernel_assistant.session.kinds.applied import time_applied
from kernel_assistant.session.kinds.applied_timing import APPLIED_FILE, AppliedTiming, write_applied
from kernel_assistant.session.kinds.check_job import check_applied
from kernel_assistant.session.kinds.decision import Decision, beside_free_wins, decide, in_file
from kernel_assistant.session.kinds.free_wins import FreeWinStep, reserved_seconds
from kernel_assistant.session.kinds.freeform_job import check_freeform, checked
from kernel_assistant.session.kinds.job_policies import JobPolicies
from kernel_assistant.session.kinds.lines_job import profile_lines
from kernel_assistant.session.kinds.never_runs import refuse_never_run, warning_of_script
from kernel_assistant.session.kinds.obstacles import obstacles_of, why_none
from kernel_assistant.session.kinds.outcome import best_candidate, best_of, confirmed, measured_offer, of_candidate
from kernel_assistant.store import JobKind, JobOptions
from kernel_assistant.store.scans import ScanStore
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.targets.cuda import gpus
from kernel_assistant.targets.detect import detect

HALVES = {"f16", "bf16"}
UNKNOWN_IN_FLOAT32 = (
    "the gain is over PyTorch in a half type, which may be slower on a CPU than the same module in float32; "
    "what that takes was not measured"
)
Emit = Callable[[AnyEvent], None]
_log = logging.getLogger(__name__)


def lane_of(task: KernelTask) -> str:
    """Returns the device that will run a task, as "cpu:0" or "cuda:1". This is also the name of its job queue. An idle
    GPU is preferred.

    Raises MissingError if there is no such device.
    """
    device = detect(task.target)
    return f"{device.target}:{device.index}"


def device_of(lane: str) -> DeviceFacts:
    """Returns the device with the name `lane`, such as "cuda:1" (see `lane_of`). Raises MissingError if it is gone."""
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
    """Runs one job of any kind. Raises UsageError, MissingError and InternalError; a kernel that fails raises nothing,
    but is part of the result."""
    started = time.monotonic()
    emit = GuardedEmit(emit)
    # Only a search has a time limit: a check that the user asked for may take any time.
    searches = options.kind is JobKind.optimize and options.candidate is None
    clock = JobClock(options.budget, reserved_seconds(options)) if searches else JobClock()
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
            clock=clock,
        ) as environment,
    ):
        run = _Run(task, options, environment, emit, cancel, services, started)
        return run.optimize() if options.kind is JobKind.optimize else run.check()


class GuardedEmit:
    """Passes the events of a job on to `emit`, which writes them to the log. Raises the StoreError of a failed write,
    so that the job fails; once a gain is confirmed, only logs it."""

    def __init__(self, emit: Emit) -> None:
        self._emit, self._confirmed = emit, False

    def __call__(self, event: AnyEvent) -> None:
        self._confirmed = self._confirmed or (isinstance(event, BestImproved) and event.confirmed)
        try:
            self._emit(event)
        except StoreError as error:
            if not self._confirmed:
                raise
            _log.warning("%s", error.cause)


class _Run:
    """Runs one job in its open environment."""

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
        self._spent: Spending | None = None

    def optimize(self) -> OptimizeResult:
        """Searches for kernels with the chosen policy or, if the options contain a candidate, only measures that one in
        full. Returns the job's result. Raises UsageError if kernels could never run in the user's program."""
        program = self._program()
        refuse_never_run(self._task.class_name, self._environment.facts, program)
        if warning := warning_of_script(self._task, program):
            self._emit(Warned(message=warning))
        if self._options.candidate is None:
            self._environment.compile_ahead()
            if slow := of_slow_opening(self._environment.clock, len(self._environment.graph.nodes)):
                self._emit(Warned(message=slow))
        with imported_ahead(self._environment, self._task, self._cancel) as ahead:
            return self._optimize(program, ahead)

    def _optimize(self, program: ProgramMode, ahead: Ahead) -> OptimizeResult:
        trajectory = self._play() if self._options.candidate is None else self._confirm(self._options.candidate)
        self._keep(lambda: self._services.store.add_trajectory(self._services.job, trajectory))
        candidate, evaluation = best_candidate(trajectory)
        decision = decide(trajectory, program, self._services.job)
        shipped = decision.offer.applicable
        artifacts = self._write(trajectory, candidate, trajectory.final or evaluation, shipped=shipped)
        decision = self._in_file(decision, artifacts, ahead)
        clock = self._environment.clock
        free = FreeWinStep(self._environment, min(clock.free, clock.left()), self._emit)
        wanted = (
            self._options.free_wins
            and self._options.candidate is None
            and decision.outcome not in (JobOutcome.cancelled, JobOutcome.failed)
        )
        if wanted and not free.run():
            decision = replace(decision, outcome=JobOutcome.cancelled)
        decision = beside_free_wins(decision, trajectory.final, tuple(free.wins), program)
        if decision.outcome is JobOutcome.improved:
            self._warn_of_float32(tuple(free.wins))
        return self._result(
            decision=decision,
            evaluation=trajectory.final,
            artifacts=artifacts,
            policy=trajectory.policy,
            evaluations=len({one.candidate for step in trajectory.steps for one in step.evaluations}),
            stop_reason=trajectory.stop_reason,
            free_wins=tuple(free.wins),
            why=why_none(trajectory),
            program=program,
        )

    def _play(self) -> Trajectory:
        clock = self._environment.clock
        job_policies = JobPolicies(
            self._task, self._options, self._environment, self._services, self._emit, self._cancel
        )
        with closing(job_policies) as policies:
            phases = policies.phases(clock.search_seconds())
            trajectory = Episode(policies.judging, phases, self._emit, self._cancel, clock).run()
            policies.keep(trajectory)
            self._spent = policies.spent
        return trajectory

    def _confirm(self, candidate: Candidate) -> Trajectory:
        """Evaluates the candidate of an earlier job in the full tier. Returns a trajectory with this candidate only."""
        began = time.monotonic()
        self._emit(Progress(phase="confirm", message="verifying and measuring in full: the best candidate until now"))
        evaluation, reason, broken = None, StopReason.finished, ""
        try:
            evaluation = self._environment.confirm(candidate)
            tell(self._emit, 1, candidate, evaluation, best=False)
            if evaluation.correct:
                tell_best(self._emit, candidate, evaluation, confirmed=True)
        except Cancelled:
            reason = StopReason.cancelled
        except (WorkerError, DeviceError) as error:
            reason, broken = StopReason.environment_broken, error.cause
        return of_candidate(self._task, candidate, evaluation, reason, time.monotonic() - began, broken)

    def _program(self) -> ProgramMode:
        """Returns whether the user's program runs the class eagerly, compiled or scripted, according to local scans."""
        selection = place_of(self._task, self._options)
        with closing(ScanStore(self._services.settings.state_dir)) as scans:
            return scans.program_of(str(selection.path), selection.class_name)

    def check(self) -> OptimizeResult:
        """Evaluates the candidate in the options in the full tier, and returns the job's result."""
        candidate = self._options.candidate
        if candidate is None:
            raise InternalError("a job to check a candidate came without one")
        self._emit(Progress(phase="search", message=f"checking {len(candidate.sources)} source files"))
        evaluation = self._environment.confirm(candidate)
        self._emit(
            CandidateEvaluated(turn=0, schedule=candidate.plan.schedule, origin=candidate.origin, evaluation=evaluation)
        )
        return self._result(
            decision=self._checked(candidate, evaluation),
            evaluation=evaluation,
            artifacts=self._write(None, candidate, evaluation),
            policy=candidate.origin,
            evaluations=1,
            stop_reason=StopReason.finished,
        )

    def _checked(self, candidate: Candidate, evaluation: Evaluation) -> Decision:
        """Returns the decision (outcome, offer, obstacles) of a job that checked one candidate. Such a job does not
        time the edited file."""
        episode = of_candidate(self._task, candidate, evaluation, StopReason.finished, 0.0)
        offer, over = measured_offer(evaluation)
        return Decision(checked(evaluation), offer, over, obstacles_of(episode, self._services.job))

    def _in_file(self, decision: Decision, artifacts: dict[str, str], ahead: Ahead) -> Decision:
        """Times the edited file if `decision` offers something to apply, and adds the written files to `artifacts`
        (name → path). Returns the new decision."""
        if not decision.offer.applicable or decision.outcome is JobOutcome.cancelled:
            return decision
        try:
            timing = self._time_file(artifacts, ahead)
        except Cancelled:
            return Decision(JobOutcome.cancelled)
        return decision if timing is None else in_file(decision, timing, self._services.job)

    def _time_file(self, artifacts: dict[str, str], ahead: Ahead) -> AppliedTiming | None:
        """Times the file with its kernels, guard included. Returns None, after a warning, if it cannot be timed."""
        folder = self._services.folder / "result"
        self._emit(
            Progress(phase="apply", message="timing your class with the kernels in it, called as your program calls it")
        )
        try:
            timing = time_applied(self._environment, self._task, folder, self._services.folder / "applied", ahead)
        except OutOfTime as error:
            self._emit(Warned(message=f"the edited file was not timed: {error.cause}"))
            return None
        except UsageError as error:
            self._emit(Warned(message=f"the kernels cannot be applied to the file: {error.cause}"))
            return None
        except WorkerError as error:
            # The confirmed result remains valid; `apply` reports that the edited file was not timed.
            _log.error("job %s: timing the edited file: %s\n%s", self._services.job, error.cause, error.detail)
            self._emit(Warned(message=f"the edited file could not be timed: {error.cause}"))
            return None
        except StoreError as error:
            self._emit(Warned(message=f"the edited file was not timed: {error.cause}; {error.next_step}"))
            return None
        artifacts[APPLIED_FILE] = str(folder / APPLIED_FILE)
        self._keep(lambda: write_applied(folder, timing))
        self._export(folder, artifacts)
        if not timing.worth:
            self._emit(Warned(message=timing.failure or timing.shortfall))
        return timing

    def _warn_of_float32(self, wins: tuple[FreeWin, ...]) -> None:
        """Emits a warning if the task runs on the CPU in a half type, in which PyTorch may be slow, and the time of
        plain float32 was not measured."""
        known = any(win.name == FLOAT32 and win.measured for win in wins)
        halves = {value.spec.dtype for value in self._environment.graph.inputs} & HALVES
        if self._task.target == "cpu" and halves and not known:
            self._emit(Warned(message=UNKNOWN_IN_FLOAT32))

    def _export(self, folder: Path, artifacts: dict[str, str]) -> None:
        """Writes model_new.py to `folder`. An error is only reported, because the confirmed result remains valid."""
        try:
            artifacts["model_new.py"] = str(export_model_new(folder, folder))
        except UsageError as error:
            _log.info("job %s: no model_new.py: %s", self._services.job, error.cause)
        except Exception as error:  # noqa: BLE001 - whatever it is, the result is what counts
            _log.exception("job %s: model_new.py", self._services.job)
            self._emit(Warned(message=f"model_new.py could not be written ({error}); the result stands"))

    def _write(
        self,
        trajectory: Trajectory | None,
        candidate: Candidate | None,
        evaluation: Evaluation | None,
        *,
        shipped: bool = True,
    ) -> dict[str, str]:
        """Writes the files of the result, and returns a dict: name → path. If `shipped` is True, binaries for other
        architectures are built too."""
        built = candidate is not None and evaluation is not None and evaluation.correct
        folder = self._services.folder / "result"
        files = result_files(
            task=msgspec.structs.replace(self._task, class_name=place_of(self._task, self._options).class_name),
            graph=self._environment.graph,
            device=self._environment.device,
            facts=self._environment.facts,
            trajectory=trajectory,
            candidate=candidate,
            evaluation=evaluation,
            binaries=self._environment.binaries(candidate, others=shipped) if built and candidate is not None else {},
        )
        self._keep(lambda: write_files(folder, files))
        return {name: str(folder / name) for name in files}

    def _keep(self, write: Callable[[], object]) -> None:
        """Calls `write` now, or later if the disk is full, so that a confirmed result is not lost."""
        failure = self._services.unwritten.write(write)
        if failure is not None:
            self._emit(Warned(message=f"{failure.cause}; it is written when there is room: {failure.next_step}"))

    def _result(
        self,
        *,
        decision: Decision,
        evaluation: Evaluation | None,
        artifacts: dict[str, str],
        policy: str,
        evaluations: int,
        stop_reason: StopReason,
        free_wins: tuple[FreeWin, ...] = (),
        why: str = "",
        program: ProgramMode = ProgramMode.unknown,
    ) -> OptimizeResult:
        timing = None if not confirmed(evaluation) or evaluation is None else evaluation.timing
        return OptimizeResult(
            task=self._task.name,
            target=self._task.target,
            device=self._environment.device.name,
            outcome=decision.outcome,
            best=best_of(evaluation, policy, tuple(sorted(artifacts.values()))),
            evaluations=evaluations,
            seconds=time.monotonic() - self._started,
            stop_reason=stop_reason.value,
            artifacts={"job": self._services.job, **artifacts},
            free_wins=free_wins,
            why=why,
            vs_eager=Gain.unknown if timing is None else timing.vs_eager,
            vs_compile=Gain.unknown if timing is None else timing.vs_compile,
            program=program,
            gain_over=decision.gain_over,
            offer=decision.offer,
            obstacles=decision.obstacles,
            session=self._task.session,
            spent=self._spent,
        )
