"""From a finished episode to what a person is told. Only confirmed figures count."""

from __future__ import annotations

from kernel_assistant.records import (
    Best,
    Candidate,
    Evaluation,
    JobOutcome,
    OptimizeResult,
    Outcome,
    Stage,
    StopReason,
    Trajectory,
)
from kernel_assistant.records.evaluation import measurably_faster

_BROKEN = (StopReason.policy_broken, StopReason.environment_broken)


def outcome_of(trajectory: Trajectory) -> JobOutcome:
    """A confirmed gain stands whatever ended the episode, unless the user did."""
    if trajectory.stop_reason is StopReason.cancelled:
        return JobOutcome.cancelled
    if trajectory.stop_reason is StopReason.at_limit:
        return JobOutcome.at_limit
    if is_inconclusive(trajectory.final):
        return JobOutcome.inconclusive
    if confirmed(trajectory.final):
        return JobOutcome.improved if is_faster(trajectory.final) else JobOutcome.no_measurable_gain
    if trajectory.stop_reason in _BROKEN:
        return JobOutcome.failed
    return JobOutcome.no_candidate if trajectory.best is None else JobOutcome.no_measurable_gain


def confirmed(evaluation: Evaluation | None) -> bool:
    """Correct and timed."""
    return evaluation is not None and evaluation.correct and evaluation.stage is Stage.profile


def is_inconclusive(evaluation: Evaluation | None) -> bool:
    """Other work disturbed every measurement."""
    return evaluation is not None and evaluation.outcome is Outcome.inconclusive


def doubt_of(result: OptimizeResult) -> str:
    """Why a job's best candidate should not be applied without a thought, "" for a confirmed gain.

    What was never measured in full is not called slow.
    """
    if result.outcome is JobOutcome.improved:
        return ""
    if result.best is None:
        ended = result.outcome.value.replace("_", " ")
        return f"the job ended ({ended}) before its best candidate was measured in full, so its gain is not known"
    return "its best candidate was measured in full, and no gain was confirmed"


def is_faster(evaluation: Evaluation | None) -> bool:
    """Measurably faster than eager and, where it could be measured, than torch.compile."""
    timing = None if evaluation is None else evaluation.timing
    if timing is None or not measurably_faster(timing.speedup_vs_eager, timing.speedup_vs_eager_ci):
        return False
    return timing.compile_ms is None or measurably_faster(timing.speedup_vs_compile, timing.speedup_vs_compile_ci)


def best_of(evaluation: Evaluation | None, policy: str, files: tuple[str, ...]) -> Best | None:
    """The figures of a confirmed evaluation; None for any other."""
    if evaluation is None or evaluation.timing is None or evaluation.accuracy is None or not evaluation.correct:
        return None
    timing, accuracy = evaluation.timing, evaluation.accuracy
    return Best(
        policy=policy,
        speedup_vs_eager=timing.speedup_vs_eager,
        speedup_vs_compile=timing.speedup_vs_compile,
        speedup_vs_compile_ci=timing.speedup_vs_compile_ci,
        error_vs_fp64=accuracy.error,
        error_ratio=accuracy.error_ratio,
        precision=evaluation.precision,
        roofline=timing.roofline,
        share_in_our_kernels=evaluation.share_in_our_kernels,
        files=files,
        residual=evaluation.residual,
    )


def best_candidate(trajectory: Trajectory) -> tuple[Candidate | None, Evaluation | None]:
    """The confirmed candidate; of an episode that was cut short the fastest so far, as the search saw it."""
    found: tuple[float, Candidate, Evaluation] | None = None
    for step in trajectory.steps:
        for candidate, evaluation in zip(step.candidates, step.evaluations, strict=True):
            if trajectory.best is not None and evaluation.candidate == trajectory.best:
                return candidate, evaluation
            timing = evaluation.timing if evaluation.correct else None
            if timing is not None and (found is None or timing.candidate_ms < found[0]):
                found = (timing.candidate_ms, candidate, evaluation)
    return (None, None) if found is None else found[1:]
