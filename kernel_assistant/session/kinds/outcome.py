"""Derives the outcome of a job from a finished episode. Only confirmed figures count."""

from __future__ import annotations

from collections import Counter

from kernel_assistant.records import (
    Best,
    Candidate,
    Evaluation,
    Gain,
    JobOutcome,
    KernelTask,
    OptimizeResult,
    Outcome,
    ProgramMode,
    Stage,
    Step,
    StopReason,
    Trajectory,
)
from kernel_assistant.records.evaluation import measurably_faster
from kernel_assistant.session.kinds.applied_timing import AppliedTiming

_BROKEN = (StopReason.policy_broken, StopReason.environment_broken)


def outcome_of(trajectory: Trajectory) -> JobOutcome:
    """Returns the outcome of an episode. A confirmed gain counts however the episode ended, unless the user
    cancelled it."""
    if trajectory.stop_reason is StopReason.cancelled:
        return JobOutcome.cancelled
    if trajectory.stop_reason is StopReason.at_limit:
        return JobOutcome.at_limit
    if is_inconclusive(trajectory.final) or trajectory.stop_reason is StopReason.unverified:
        return JobOutcome.inconclusive
    if confirmed(trajectory.final):
        return measured_outcome(trajectory.final)
    return JobOutcome.failed if trajectory.stop_reason in _BROKEN else JobOutcome.no_candidate


def confirmed(evaluation: Evaluation | None) -> bool:
    """Whether a candidate is correct and timed."""
    return evaluation is not None and evaluation.correct and evaluation.stage is Stage.profile


def measured_outcome(evaluation: Evaluation | None) -> JobOutcome:
    """Returns the outcome of a confirmed candidate: inconclusive if the intervals allow both a gain and none."""
    if is_faster(evaluation):
        return JobOutcome.improved
    timing = None if evaluation is None else evaluation.timing
    verdicts = () if timing is None else (timing.vs_eager, timing.vs_compile)
    refuted = Gain.slower in verdicts or Gain.no_gain in verdicts
    return JobOutcome.no_measurable_gain if refuted else JobOutcome.inconclusive


def is_inconclusive(evaluation: Evaluation | None) -> bool:
    """Whether other work on the machine disturbed every measurement."""
    return evaluation is not None and evaluation.outcome is Outcome.inconclusive


def in_file_outcome(timing: AppliedTiming) -> JobOutcome:
    """Returns the outcome of kernels that are faster by themselves but not, or not clearly, in the edited file."""
    unclear = not timing.failure and timing.in_file is Gain.unclear
    return JobOutcome.inconclusive if unclear else JobOutcome.no_measurable_gain


def of_candidate(
    task: KernelTask, candidate: Candidate, evaluation: Evaluation | None, reason: StopReason, seconds: float
) -> Trajectory:
    """Returns the trajectory of a job that confirmed one candidate; `evaluation` is None if that was interrupted."""
    evaluations = () if evaluation is None else (evaluation,)
    step = Step(
        turn=1,
        message="",
        candidates=(candidate,) * len(evaluations),
        evaluations=evaluations,
        started=0.0,
        ended=seconds,
    )
    return Trajectory(
        task=task.hash(),
        policy=candidate.origin,
        steps=(step,),
        stop_reason=reason,
        seconds=seconds,
        best=evaluation.candidate if evaluation is not None and evaluation.correct else None,
        final=evaluation,
    )


def is_unconfirmed(result: OptimizeResult) -> bool:
    """Whether measuring the best candidate in the full tier, for the first time or again, may show a gain."""
    open_ended = result.outcome in (JobOutcome.inconclusive, JobOutcome.cancelled, JobOutcome.failed)
    return (result.best is None or open_ended) and not result.applicable and "plan.json" in result.artifacts


def doubt_of(result: OptimizeResult) -> str:
    """Returns why a job's best candidate should not simply be applied, "" for a confirmed gain.

    A candidate that was not measured in the full tier is not called slow.
    """
    if result.applicable:
        return ""
    if result.outcome is JobOutcome.inconclusive and result.best is not None:
        return "its best candidate was measured in full, and it is not clear whether it gains anything"
    if (
        result.program is ProgramMode.compiled
        and result.vs_eager is Gain.faster
        and result.vs_compile is not Gain.faster
    ):
        return "it gains over eager PyTorch alone, and your program runs the class inside torch.compile"
    if result.outcome is JobOutcome.cancelled and result.best is not None:
        return "the job was cancelled before the edited file was timed, so what it gains there is not known"
    if result.best is None:
        ended = result.outcome.value.replace("_", " ")
        return f"the job ended ({ended}) before its best candidate was measured in full, so its gain is not known"
    return "its best candidate was measured in full, and no gain was confirmed"


def gains_over_eager_alone(evaluation: Evaluation | None, program: ProgramMode) -> bool:
    """Whether there is a gain over eager mode but none over torch.compile, for a program that is not known to use
    torch.compile."""
    timing = None if evaluation is None or not confirmed(evaluation) else evaluation.timing
    return (
        timing is not None
        and program is not ProgramMode.compiled
        and timing.vs_eager is Gain.faster
        and timing.vs_compile is not Gain.faster
    )


def is_faster(evaluation: Evaluation | None) -> bool:
    """Whether the candidate is measurably faster than eager mode and, if that could be measured, than torch.compile."""
    timing = None if evaluation is None else evaluation.timing
    if timing is None or not measurably_faster(timing.speedup_vs_eager, timing.speedup_vs_eager_ci):
        return False
    return timing.compile_ms is None or measurably_faster(timing.speedup_vs_compile, timing.speedup_vs_compile_ci)


def why_none(trajectory: Trajectory) -> str:
    """Returns in one line why an episode has no correct candidate: unsupported operators, or how candidates failed."""
    if trajectory.best is not None or trajectory.stop_reason is StopReason.at_limit:
        return ""
    failed = [one for step in trajectory.steps for one in step.evaluations if not one.correct]
    if not failed:
        return "; ".join(trajectory.unsupported)
    if any(one.correct for step in trajectory.steps for one in step.evaluations):
        return ""
    (outcome, count), *_ = Counter(one.outcome for one in failed).most_common(1)
    message = next(one.message for one in failed if one.outcome is outcome)
    words = outcome.value.replace("_", " ")
    return f"none of {len(failed)} candidates was correct; {count} ended as {words}, the first: {message}"


def best_of(evaluation: Evaluation | None, policy: str, files: tuple[str, ...]) -> Best | None:
    """Returns the figures of a confirmed evaluation, None for any other."""
    if evaluation is None or evaluation.timing is None or evaluation.accuracy is None or not evaluation.correct:
        return None
    timing, accuracy = evaluation.timing, evaluation.accuracy
    return Best(
        policy=policy,
        speedup_vs_eager=timing.speedup_vs_eager,
        speedup_vs_compile=timing.speedup_vs_compile,
        speedup_vs_compile_ci=timing.speedup_vs_compile_ci,
        speedup_vs_eager_ci=timing.speedup_vs_eager_ci,
        error_vs_fp64=accuracy.error,
        error_ratio=accuracy.error_ratio,
        precision=evaluation.precision,
        roofline=timing.roofline,
        share_in_our_kernels=evaluation.share_in_our_kernels,
        files=files,
        residual=evaluation.residual,
        relative_error=accuracy.relative_error,
        candidate_ms=timing.candidate_ms,
        eager_ms=timing.eager_ms,
        compile_ms=timing.compile_ms,
    )


def best_candidate(trajectory: Trajectory) -> tuple[Candidate | None, Evaluation | None]:
    """Returns the confirmed candidate; or, of an episode that was interrupted, the fastest of the search so far."""
    best: tuple[float, Candidate, Evaluation] | None = None
    for step in trajectory.steps:
        for candidate, evaluation in zip(step.candidates, step.evaluations, strict=True):
            if trajectory.best is not None and evaluation.candidate == trajectory.best:
                return candidate, evaluation
            timing = evaluation.timing if evaluation.correct else None
            if timing is not None and (best is None or timing.ranked_ms < best[0]):
                best = (timing.ranked_ms, candidate, evaluation)
    return (None, None) if best is None else best[1:]
