"""What a job that searched comes to: its outcome, what it offers, and what stood in the way. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernel_assistant.records import Evaluation, FreeWin, JobOutcome, Obstacle, Offer, ProgramMode, Trajectory
from kernel_assistant.records.free_win import float32_win
from kernel_assistant.session.kinds.applied_timing import AppliedTiming
from kernel_assistant.session.kinds.obstacles import obstacles_of, of_edited_file
from kernel_assistant.session.kinds.outcome import OUTCOMES, in_file_offer, measured_offer, outcome_of


@dataclass(frozen=True)
class Decision:
    """`gain_over` is the baseline that the offer gains over, "" where nothing is to be applied."""

    outcome: JobOutcome
    offer: Offer = Offer.none
    gain_over: str = ""
    obstacles: tuple[Obstacle, ...] = ()


def decide(trajectory: Trajectory, program: ProgramMode, job: str) -> Decision:
    """Returns what an episode offers by itself, before its kernels were timed in the file."""
    offer, over = measured_offer(trajectory.final, program)
    return Decision(outcome_of(trajectory, program), offer, over, obstacles_of(trajectory, job))


def in_file(decision: Decision, timing: AppliedTiming, job: str) -> Decision:
    """Returns the decision after the edited file was timed, in which the guard may eat the gain."""
    if timing.worth:
        return decision
    offer = in_file_offer(timing)
    obstacle = of_edited_file(timing.failure or timing.shortfall, job, unclear=offer is Offer.unclear)
    outcome = OUTCOMES[offer] if decision.outcome is JobOutcome.improved else decision.outcome
    return Decision(outcome, offer, "", (obstacle, *decision.obstacles))


def beside_free_wins(
    decision: Decision, final: Evaluation | None, wins: tuple[FreeWin, ...], program: ProgramMode
) -> Decision:
    """Returns the decision after the changes that need no kernel were timed: a faster mode of torch.compile is another
    baseline, and where plain float32 is as fast as kernels in a half type, these are no gain."""
    if not decision.offer.applicable or decision.outcome is JobOutcome.cancelled:
        return decision
    timing = None if final is None else final.timing
    if float32_win(wins, None if timing is None else timing.speedup_vs_compile) is not None:
        return replace(decision, outcome=JobOutcome.no_measurable_gain, offer=Offer.none, gain_over="")
    offer, over = measured_offer(final, program, wins)
    return replace(decision, outcome=OUTCOMES[offer], offer=offer, gain_over=over)
