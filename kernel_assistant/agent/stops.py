"""The conditions that end an episode. Pure."""

from __future__ import annotations

from kernel_assistant.agent.budget import Budget
from kernel_assistant.records import Baseline, StopReason

AT_LIMIT = 0.95
#: A share of the roofline above this means that the roofline is wrong; it ends nothing.
BELIEVABLE = 1.1
#: Above this multiple of torch.compile's time a candidate counts as slower; the quick tier measures no better.
SLOWER = 1.01
#: A limit that is reached does not end an episode before this turn while the best candidate is slower.
TURNS_WHILE_SLOWER = 4


class Stop(Exception):
    """Raised to end an episode. `reason` is its stop reason, `why` an explanation for the user, or ""."""

    def __init__(self, reason: StopReason, why: str = "") -> None:
        super().__init__(reason.value)
        self.reason, self.why = reason, why


def reason_to_stop(
    baseline: Baseline, best_ms: float, budget: Budget, *, seconds: float, turns: int, stalled: int
) -> StopReason | None:
    """Returns the first stop reason that holds after a turn; None if the search goes on. `best_ms` is infinite while no
    candidate is correct; `seconds` and `turns` were used so far; `stalled` is the number of turns without progress."""
    compiled = baseline.compile_ms or baseline.eager_ms
    enough = best_ms <= SLOWER * compiled or turns >= TURNS_WHILE_SLOWER
    reasons = (
        (StopReason.at_limit, enough and reaches_limit(baseline.floor_ms, compiled)),
        (StopReason.at_roofline, enough and reaches_limit(baseline.floor_ms, best_ms)),
        (StopReason.target_reached, bool(budget.target_speedup) and compiled / best_ms >= (budget.target_speedup or 0)),
        (StopReason.wall_time, seconds >= budget.seconds),
        (StopReason.turns, turns >= budget.turns),
        (StopReason.no_progress, stalled >= budget.patience),
    )
    return next((reason for reason, holds in reasons if holds), None)


def reaches_limit(floor_ms: float, measured_ms: float) -> bool:
    """Whether a measured time is at the roofline (`floor_ms`, the lower bound for the device). A time well below the
    roofline does not count: then the roofline is wrong."""
    return AT_LIMIT <= floor_ms / measured_ms <= BELIEVABLE
