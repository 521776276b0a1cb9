"""Derives the outcome of a job from the record of its finished search. A gain counts only if a measurement in the full
tier confirmed it."""

from __future__ import annotations

from kernel_assistant.records import (
    Best,
    Candidate,
    Evaluation,
    FreeWin,
    Gain,
    JobOutcome,
    KernelTask,
    Offer,
    OptimizeResult,
    Outcome,
    ProgramMode,
    Stage,
    Step,
    StopReason,
    Trajectory,
)
from kernel_assistant.records.offer import gain_over, offer_of, verdicts_of
from kernel_assistant.session.kinds.applied_timing import AppliedTiming

_BROKEN = (StopReason.policy_broken, StopReason.environment_broken)
#: The outcome of a job whose candidate was measured in full. A gain that is only possible is none over torch.compile.
OUTCOMES = {
    Offer.recommended: JobOutcome.improved,
    Offer.possible: JobOutcome.no_measurable_gain,
    Offer.none: JobOutcome.no_measurable_gain,
    Offer.unclear: JobOutcome.inconclusive,
}
#: Outcomes of the full tier after which a candidate may still be right: what other work or a lost process causes.
NOT_REFUTED = (Outcome.correct, Outcome.inconclusive, Outcome.crashed, Outcome.hung, Outcome.out_of_memory)


def outcome_of(trajectory: Trajectory, program: ProgramMode = ProgramMode.unknown) -> JobOutcome:
    """Returns the outcome of a search. A confirmed gain counts for every stop reason except a cancellation by the user.
    `program` says whether the user's program runs the class eagerly or compiled."""
    if trajectory.stop_reason is StopReason.cancelled:
        return JobOutcome.cancelled
    if trajectory.stop_reason is StopReason.at_limit and not measured_offer(trajectory.final, program)[0].applicable:
        return JobOutcome.at_limit
    if is_inconclusive(trajectory.final) or trajectory.stop_reason is StopReason.unverified:
        return JobOutcome.inconclusive
    if confirmed(trajectory.final):
        return measured_outcome(trajectory.final, program)
    if trajectory.stop_reason in _BROKEN:
        return JobOutcome.failed
    return JobOutcome.no_candidate if best_candidate(trajectory)[0] is None else JobOutcome.inconclusive


def confirmed(evaluation: Evaluation | None) -> bool:
    """Whether this evaluation has timed a candidate and found it correct."""
    return evaluation is not None and evaluation.correct and evaluation.stage is Stage.profile


def measured_offer(
    evaluation: Evaluation | None, program: ProgramMode = ProgramMode.unknown, wins: tuple[FreeWin, ...] = ()
) -> tuple[Offer, str]:
    """Returns the offer (whether front ends offer to apply the candidate), and the baseline over which it gains ("" if
    there is none). `program` says whether the user's program runs the class eagerly or compiled; a faster mode of
    torch.compile among `wins` becomes one more baseline."""
    timing = evaluation.timing if evaluation is not None and confirmed(evaluation) else None
    if timing is None:
        return Offer.none, ""
    over_compile = timing.speedup_vs_compile, timing.speedup_vs_compile_ci
    verdicts = verdicts_of(over_compile, (timing.speedup_vs_eager, timing.speedup_vs_eager_ci), wins)
    return offer_of(verdicts, program), gain_over(verdicts, program)


def measured_outcome(evaluation: Evaluation | None, program: ProgramMode = ProgramMode.unknown) -> JobOutcome:
    """Returns the outcome of a job whose candidate was confirmed by this evaluation: `improved`, `no_measurable_gain`
    or `inconclusive`. It is `no_measurable_gain` if `evaluation` is None or has no confirmed times. `program` says
    whether the user's program runs the class eagerly or compiled."""
    return OUTCOMES[measured_offer(evaluation, program)[0]]


def is_inconclusive(evaluation: Evaluation | None) -> bool:
    """Whether the evaluation is inconclusive: other work on the machine disturbed every measurement."""
    return evaluation is not None and evaluation.outcome is Outcome.inconclusive


def in_file_offer(timing: AppliedTiming) -> Offer:
    """Returns the offer for kernels that are faster by themselves but not worth applying in the edited file: `unclear`
    if the times in the file may still show a gain, else `none`."""
    unclear = not timing.failure and timing.in_file is Gain.unclear
    return Offer.unclear if unclear else Offer.none


def of_candidate(
    task: KernelTask,
    candidate: Candidate,
    evaluation: Evaluation | None,
    reason: StopReason,
    seconds: float,
    broken: str = "",
) -> Trajectory:
    """Returns the record of a job that evaluated only one candidate. `evaluation` is None if the evaluation was
    interrupted. `broken` is the reason if the worker was lost, else "". `seconds` is the duration of the evaluation."""
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
        broken=broken,
    )


def is_unconfirmed(result: OptimizeResult) -> bool:
    """Whether the best candidate may still have a gain that another measurement in the full tier could confirm."""
    open_ended = result.outcome in (JobOutcome.inconclusive, JobOutcome.cancelled, JobOutcome.failed)
    return (result.best is None or open_ended) and not result.applicable and "plan.json" in result.artifacts


def doubt_of(result: OptimizeResult) -> str:
    """Returns why a job's best candidate should not be applied without further thought, "" for a confirmed gain.

    The reason distinguishes a candidate without a gain from one that was never measured in the full tier.
    """
    if result.applicable:
        return ""
    if result.outcome is JobOutcome.inconclusive and result.best is not None:
        return "its best candidate was measured in full, and it is not clear whether it gains anything"
    if other := _gains_over_the_other(result):
        return other
    if result.outcome is JobOutcome.cancelled and result.best is not None:
        return "the job was cancelled before the edited file was timed, so what it gains there is not known"
    if result.best is None:
        ended = result.outcome.value.replace("_", " ")
        return f"the job ended ({ended}) before its best candidate was measured in full, so its gain is not known"
    return "its best candidate was measured in full, and no gain was confirmed"


def _gains_over_the_other(result: OptimizeResult) -> str:
    """Returns a message if the candidate gains only over the baseline (eager or torch.compile) that the user's program
    does not run; "" for any other result."""
    compiled = result.program is ProgramMode.compiled
    mine, other = (result.vs_compile, result.vs_eager) if compiled else (result.vs_eager, result.vs_compile)
    if result.program is ProgramMode.unknown or other is not Gain.faster or mine is Gain.faster:
        return ""
    if compiled:
        return "it gains over eager PyTorch alone, and your program runs the class inside torch.compile"
    return "it gains over torch.compile alone, and your program runs the class without it"


def best_of(evaluation: Evaluation | None, policy: str, files: tuple[str, ...]) -> Best | None:
    """Returns the times and errors of a correct, timed evaluation as a `Best`; None for any other evaluation."""
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
    """Returns the confirmed candidate and its evaluation. If none was confirmed, returns the fastest correct candidate
    of the search that did not fail in the full tier; (None, None) if there is none."""
    refuted = {one.candidate for one in trajectory.in_full if one.outcome not in NOT_REFUTED}
    best: tuple[float, Candidate, Evaluation] | None = None
    for step in trajectory.steps:
        for candidate, evaluation in zip(step.candidates, step.evaluations, strict=True):
            if trajectory.best is not None and evaluation.candidate == trajectory.best:
                return candidate, evaluation
            timing = evaluation.timing if evaluation.correct and evaluation.candidate not in refuted else None
            if timing is not None and (best is None or timing.ranked_ms < best[0]):
                best = (timing.ranked_ms, candidate, evaluation)
    return (None, None) if best is None else best[1:]
