"""Explains by obstacles why a job has no confirmed gain. An obstacle names the check that failed, where it failed, and
what the user can try. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kernel_assistant.errors import EXIT_INTERNAL, EXIT_MISSING, KernelAssistantError
from kernel_assistant.records import (
    Evaluation,
    Gain,
    Obstacle,
    Outcome,
    Stage,
    StopReason,
    Tier,
    Timing,
    Trajectory,
)
from kernel_assistant.records.offer import OVER_COMPILE, OVER_EAGER
from kernel_assistant.session.kinds.outcome import best_candidate, confirmed, is_inconclusive

#: Name of the check that a correct candidate of the search did not come to or get through.
CONFIRMATION = "confirmation"
#: Outcome of a policy whose endpoint refused us: the key, the credit or the model's name is at fault.
REFUSED = "refused"
#: Kinds of failures that are told; the rest is in `show --all`.
MOST_KINDS = 3
_REPORT = "kernel-assistant show {job} --all --source has the texts: report them, the module is not at fault"
DOCTOR = "kernel-assistant doctor checks the machine; the end of worker.log says what the worker said last"
_MODEL = "--policy model lets a model write it"
#: What a model may use up, and what to try then.
USED_UP = {
    StopReason.tokens: ("the tokens, or the context of the model, were", "give it more --tokens, or a longer context"),
    StopReason.money: ("the money was", "give it more --money"),
}
#: What to try after each outcome of a candidate.
NEXT_STEPS = {
    Outcome.refused: f"{_REPORT}; or {_MODEL}",
    Outcome.compile_error: f"{_REPORT}; or {_MODEL}",
    Outcome.crashed: f"{_REPORT}; the end of worker.log says what it said last",
    Outcome.hung: "declare smaller inputs, or try again when the machine is quiet",
    Outcome.out_of_memory: "free memory of the device, or declare smaller inputs",
    Outcome.incorrect: f"{_REPORT}; where the difference is one that you accept: --numerics paper",
    Outcome.nondeterministic: f"{_REPORT}; or {_MODEL}",
    Outcome.cheating: _REPORT,
    Outcome.inconclusive: "try again when the machine is quiet",
}


def obstacles_of(trajectory: Trajectory, job: str) -> tuple[Obstacle, ...]:
    """Returns the obstacles that kept an episode from a confirmed gain, the most direct one first. Returns () if the
    measurement in the full tier gave a clear verdict on both baselines, or if the user cancelled the job."""
    if trajectory.stop_reason is StopReason.cancelled:
        return ()
    if confirmed(trajectory.final):
        return _unclear(trajectory.final, job)
    obstacles = [*_endings(trajectory, job), *_of_candidates(trajectory, job)]
    return tuple(obstacles or [_nothing_tried(trajectory)])


def why_none(trajectory: Trajectory) -> str:
    """Returns in one line why an episode has no correct candidate: unsupported operators, or how candidates failed; ""
    if it has one, or if torch.compile is at the roofline already."""
    if trajectory.best is not None or trajectory.stop_reason is StopReason.at_limit:
        return ""
    evaluations = _evaluations(trajectory)
    if not [one for one in evaluations if not one.correct]:
        return "; ".join(trajectory.unsupported)
    if any(one.correct for one in _searched(trajectory)):
        return ""
    (_, _, outcome), count, of, first = _kinds(evaluations)[0]
    words = outcome.value.replace("_", " ")
    return f"none of {of} candidates was correct; {count} ended as {words}, the first: {first.message}"


def of_error(error: KernelAssistantError) -> Obstacle:
    """Returns the obstacle of a job that ended with an exception. The exception's exit code decides whether `check` is
    "judge", "machine" or "module"."""
    check = {EXIT_INTERNAL: "judge", EXIT_MISSING: "machine"}.get(error.exit_code, "module")
    step = error.next_step or DOCTOR
    return Obstacle(check=check, outcome="failed", message=error.cause, next_step=step)


def of_edited_file(words: str, job: str, *, unclear: bool) -> Obstacle:
    """Returns the obstacle of kernels that are faster by themselves but not in the edited file. `words` describe the
    timing; `unclear` means that the difference is not significant."""
    again = f"kernel-assistant confirm {job} measures it again"
    step = again if unclear else "optimize a larger class around it, where the guard costs less"
    return Obstacle(check="edited file", outcome="unclear" if unclear else "no gain", message=words, next_step=step)


def place_of_failure(evaluation: Evaluation) -> str:
    """Returns where an evaluation failed first: the element of an output that differs, or the file and line of a
    diagnostic; "" if neither is known."""
    mismatch = evaluation.mismatch
    if mismatch is not None:
        index = ", ".join(map(str, mismatch.index))
        return f"{mismatch.output}[{index}] of {mismatch.workload}, {mismatch.count} of {mismatch.total} elements"
    first = next(iter(evaluation.diagnostics), None)
    if first is None or not first.file:
        return ""
    return f"{first.file}:{first.line}" if first.line else first.file


def _endings(trajectory: Trajectory, job: str) -> list[Obstacle]:
    """Returns the obstacles that ended the episode, apart from failed candidates: unsupported operators, a broken
    policy or environment, a model without progress, a best candidate that was not confirmed."""
    reason = trajectory.stop_reason
    obstacles = [
        Obstacle(
            check="operators",
            outcome="unsupported",
            message=words,
            next_step=f"optimize a class inside it without that operator; or {_MODEL}",
        )
        for words in trajectory.unsupported
    ]
    if reason is StopReason.policy_broken:
        step = trajectory.next_step or "kernel-assistant models list; --policy generator needs no model"
        outcome = REFUSED if trajectory.next_step else "broken"
        obstacles.append(Obstacle(check="policy", outcome=outcome, message=trajectory.broken, next_step=step))
    if reason is StopReason.no_progress and trajectory.broken:
        step = "try another model (kernel-assistant models list); --policy generator needs none"
        obstacles.append(Obstacle(check="policy", outcome="no progress", message=trajectory.broken, next_step=step))
    if reason is StopReason.environment_broken:
        obstacles.append(Obstacle(check="environment", outcome="broken", message=trajectory.broken, next_step=DOCTOR))
    candidate, evaluation = best_candidate(trajectory)
    if candidate is not None and evaluation is not None:
        obstacles.append(_unconfirmed(trajectory, evaluation, job))
    return obstacles


def _unconfirmed(trajectory: Trajectory, evaluation: Evaluation, job: str) -> Obstacle:
    last = next((one for one in reversed(trajectory.in_full) if not one.correct), None)
    if is_inconclusive(trajectory.final):
        why = "other work on the machine disturbed every measurement"
    elif last is not None:
        why = f"{last.outcome.value.replace('_', ' ')} in full: {last.message}"
    elif trajectory.stop_reason in (StopReason.unverified, StopReason.wall_time):
        why = "the budget ended first"
    else:
        why = trajectory.broken or "the job ended first"
    timing = evaluation.timing
    figure = f" ({timing.candidate_ms:.3g} ms, {timing.speedup_vs_eager:.2f}× eager in the search)" if timing else ""
    return Obstacle(
        check=CONFIRMATION,
        outcome="not confirmed",
        message=f"a correct candidate was found and not confirmed{figure}: {why}",
        next_step=f"kernel-assistant confirm {job}",
    )


def _of_candidates(trajectory: Trajectory, job: str) -> list[Obstacle]:
    """Returns an obstacle for each of the most frequent kinds of failed candidates. If a candidate of the search was
    correct, only failures in the full tier count."""
    evaluations = _evaluations(trajectory)
    if any(one.correct for one in _searched(trajectory)):
        evaluations = [one for one in evaluations if one.tier is Tier.full]
    obstacles = []
    for (tier, stage, outcome), count, of, first in _kinds(evaluations)[:MOST_KINDS]:
        obstacles.append(
            Obstacle(
                check=stage.value + (" in full" if tier is Tier.full else ""),
                outcome=outcome.value,
                where=place_of_failure(first),
                count=count,
                of=of,
                message=first.message,
                next_step=NEXT_STEPS[outcome].format(job=job),
            )
        )
    return obstacles


def _nothing_tried(trajectory: Trajectory) -> Obstacle:
    if trajectory.stop_reason is StopReason.at_limit:
        message = "torch.compile reaches what the device allows"
        return Obstacle(check="limit", outcome="at limit", message=message, next_step="nothing is left to gain here")
    if trajectory.stop_reason in (StopReason.wall_time, StopReason.unverified):
        message = "the budget ended before a candidate was judged"
        return Obstacle(check="budget", outcome="used up", message=message, next_step="give it a longer --budget")
    if trajectory.stop_reason in USED_UP:
        what, next_step = USED_UP[trajectory.stop_reason]
        message = f"{what} used up before a candidate was judged"
        return Obstacle(check="budget", outcome="used up", message=message, next_step=next_step)
    reason = trajectory.stop_reason.value.replace("_", " ")
    message = f"no candidate was proposed ({reason})"
    return Obstacle(check="policy", outcome="no candidate", message=message, next_step=_MODEL)


def _unclear(evaluation: Evaluation | None, job: str) -> tuple[Obstacle, ...]:
    timing = None if evaluation is None else evaluation.timing
    if timing is None:
        return ()
    return tuple(_too_wide(*each, job) for each in intervals(timing) if each[1] is Gain.unclear)


def intervals(timing: Timing) -> list[tuple[str, Gain, tuple[float, float] | None]]:
    """Returns (baseline, verdict, interval of the speed-up) for both baselines, torch.compile first."""
    return [
        (OVER_COMPILE, timing.vs_compile, timing.speedup_vs_compile_ci),
        (OVER_EAGER, timing.vs_eager, timing.speedup_vs_eager_ci),
    ]


def _too_wide(baseline: str, gain: Gain, bounds: tuple[float, float] | None, job: str) -> Obstacle:
    low, high = bounds or (0.0, float("inf"))
    return Obstacle(
        check="measurement",
        outcome=gain.value,
        where=f"over {baseline}",
        message=f"{low:.2f} to {high:.2f} times as fast, which allows for a gain and for none",
        next_step=f"kernel-assistant confirm {job} measures it again; best on a quiet machine",
    )


def _searched(trajectory: Trajectory) -> Iterable[Evaluation]:
    return (one for step in trajectory.steps for one in step.evaluations)


def _evaluations(trajectory: Trajectory) -> list[Evaluation]:
    return [*_searched(trajectory), *trajectory.in_full]


def _kinds(
    evaluations: list[Evaluation],
) -> list[tuple[tuple[Tier, Stage, Outcome], int, int, Evaluation]]:
    """Returns the kinds of failures, the most frequent first, as (kind, number of failures, number of all evaluations
    in this tier, first failed evaluation). A kind is (tier, stage, outcome)."""
    failed = [one for one in evaluations if not one.correct]
    counted = Counter((one.tier, one.stage, one.outcome) for one in failed)
    tiers = Counter(one.tier for one in evaluations)
    return [
        (kind, count, tiers[kind[0]], next(one for one in failed if (one.tier, one.stage, one.outcome) == kind))
        for kind, count in counted.most_common()
    ]
