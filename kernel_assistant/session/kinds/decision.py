"""Decides what a job with a search reports: its outcome, its offer (whether front ends offer to apply the kernels), and
its obstacles (reasons why there is no gain). Pure functions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernel_assistant.records import Evaluation, FreeWin, JobOutcome, Obstacle, Offer, ProgramMode, Trajectory
from kernel_assistant.records.free_win import float32_win
from kernel_assistant.session.kinds.applied_timing import AppliedTiming
from kernel_assistant.session.kinds.obstacles import obstacles_of, of_edited_file
from kernel_assistant.session.kinds.outcome import OUTCOMES, in_file_offer, measured_offer, outcome_of


@dataclass(frozen=True)
class Decision:
    """What a job reports: its outcome, its offer (whether front ends offer to apply the kernels) and its obstacles (why
    there is no gain). `gain_over` is the baseline that the offered kernels beat, "" if there is nothing to apply."""

    outcome: JobOutcome
    offer: Offer = Offer.none
    gain_over: str = ""
    obstacles: tuple[Obstacle, ...] = ()


def decide(trajectory: Trajectory, program: ProgramMode, job: str) -> Decision:
    """Returns the decision after the search, before the edited file is timed. `trajectory` is the record of the search;
    `program` says whether the user's program runs the class eagerly or compiled; `job` is the job's number."""
    offer, over = measured_offer(trajectory.final, program)
    return Decision(outcome_of(trajectory, program), offer, over, obstacles_of(trajectory, job))


def in_file(decision: Decision, timing: AppliedTiming, job: str) -> Decision:
    """Returns the decision after the edited file was timed. There is nothing to apply any more if the guard (the check
    before each call) costs more than the kernels gain."""
    if timing.worth:
        return decision
    offer = in_file_offer(timing)
    obstacle = of_edited_file(timing.failure or timing.shortfall, job, unclear=offer is Offer.unclear)
    outcome = OUTCOMES[offer] if decision.outcome is JobOutcome.improved else decision.outcome
    return Decision(outcome, offer, "", (obstacle, *decision.obstacles))


def beside_free_wins(
    decision: Decision, final: Evaluation | None, wins: tuple[FreeWin, ...], program: ProgramMode
) -> Decision:
    """Returns the decision after the free wins (speed-ups without kernels) were timed. If a mode of torch.compile was
    faster than the default mode, it becomes one more baseline. If plain float32 is as fast as kernels in a half type,
    the kernels are no gain."""
    if not decision.offer.applicable or decision.outcome is JobOutcome.cancelled:
        return decision
    timing = None if final is None else final.timing
    if float32_win(wins, None if timing is None else timing.speedup_vs_compile) is not None:
        return replace(decision, outcome=JobOutcome.no_measurable_gain, offer=Offer.none, gain_over="")
    offer, over = measured_offer(final, program, wins)
    return replace(decision, outcome=OUTCOMES[offer], offer=offer, gain_over=over)
