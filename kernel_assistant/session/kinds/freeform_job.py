"""A job that checks a free-form candidate: a Python file with a class `ModelNew` (KernelBench), or a folder in the
layout of CUDA-Agent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from kernel_assistant.environment.freeform import open_freeform
from kernel_assistant.environment.freeform_candidate import ModelCandidate
from kernel_assistant.environment.repeated_measurement import MOST_LOOKS, RepeatedMeasurement
from kernel_assistant.errors import InternalError
from kernel_assistant.events import AnyEvent, CandidateEvaluated
from kernel_assistant.records import Evaluation, Gain, JobOutcome, KernelTask, OptimizeResult, StopReason, Tier
from kernel_assistant.session.artifacts import write_result
from kernel_assistant.session.hosting.jobs import JobServices
from kernel_assistant.session.kinds.outcome import best_of, confirmed, is_inconclusive, measured_outcome
from kernel_assistant.store import FreeformFiles, JobKind, JobOptions
from kernel_assistant.targets.base import DeviceFacts

ORIGIN = "freeform"


def check_freeform(
    task: KernelTask,
    options: JobOptions,
    device: DeviceFacts,
    *,
    emit: Callable[[AnyEvent], None],
    cancel: threading.Event,
    services: JobServices,
) -> OptimizeResult:
    """Evaluates the free-form candidate in `options` and returns the job's result. A `verify` job ends after verifying
    the candidate, a `profile` job also times it."""
    started = time.monotonic()
    candidate = candidate_of(options.freeform)
    with (
        services.workers.lend(options.python, device) as worker,
        open_freeform(
            task,
            device=device,
            worker=worker,
            sandbox_mode=options.sandbox,
            cache_dir=services.settings.cache_dir,
            cancel=cancel,
            emit=emit,
        ) as environment,
    ):
        evaluation = environment.evaluate(
            candidate, Tier.full, profile=options.kind is JobKind.profile, repetition=RepeatedMeasurement(MOST_LOOKS)
        )
        emit(CandidateEvaluated(turn=0, schedule=candidate.name, origin=ORIGIN, evaluation=evaluation))
        artifacts = write_result(
            services.folder / "result",
            task=task,
            graph=environment.graph,
            device=environment.device,
            facts={},
            evaluation=evaluation,
        )
        timing = evaluation.timing if confirmed(evaluation) else None
        return OptimizeResult(
            task=task.name,
            target=task.target,
            device=environment.device.name,
            outcome=checked(evaluation),
            best=best_of(evaluation, ORIGIN, ()),
            evaluations=1,
            seconds=time.monotonic() - started,
            stop_reason=StopReason.finished.value,
            artifacts={"job": services.job, **artifacts},
            vs_eager=Gain.unknown if timing is None else timing.vs_eager,
            vs_compile=Gain.unknown if timing is None else timing.vs_compile,
        )


def checked(evaluation: Evaluation) -> JobOutcome:
    """Returns the outcome of a job that checks one free-form candidate."""
    if is_inconclusive(evaluation):
        return JobOutcome.inconclusive
    if not evaluation.correct:
        return JobOutcome.no_candidate
    # A candidate that was only verified has no gain to report.
    return measured_outcome(evaluation) if confirmed(evaluation) else JobOutcome.no_measurable_gain


def candidate_of(source: FreeformFiles | None) -> ModelCandidate:
    """Returns the candidate for files that `source_of` made. Raises InternalError for None."""
    if source is None:
        raise InternalError("a job to check a candidate came without one")
    return ModelCandidate(
        path=Path(source.path),
        text=source.text,
        reference=source.reference,
        reference_path=Path(source.reference_path),
        sources=source.sources,
    )


def source_of(candidate: ModelCandidate) -> FreeformFiles:
    """Returns the candidate's files as the record that is sent to the session host."""
    return FreeformFiles(
        path=str(candidate.path.absolute()),
        text=candidate.text,
        reference=candidate.reference,
        reference_path=str(candidate.reference_path.absolute()),
        sources=candidate.sources,
    )
