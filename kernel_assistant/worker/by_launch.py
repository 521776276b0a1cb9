"""What each launch of a plan takes: a call that ends behind it, less one that ends before it.

A launch alone might wait for ever for what the one before it resets; the beginning of a call is as good as all of it.
"""

from __future__ import annotations

from typing import Any

from .runner_client import RunnerClient
from .timing import PlanSubject

#: Of longer plans nothing is said.
MOST_LAUNCHES = 16
#: The shortest of these counts: other load only ever adds time.
ROUNDS = 3
BLOCK_SECONDS = 0.003
MOST_CALLS = 64


def times_by_launch(
    runner: RunnerClient, plan: dict[str, Any], sets: int, seconds: float, timeout: float
) -> list[dict[str, Any]]:
    """`name` and `ms` of each launch in order, on the sets that are bound; empty for a single one.

    `seconds` is what a call takes. What the one before left in the cache makes a launch faster, as it does in a call.
    Afterwards the runner has to be bound anew.
    """
    launches = plan["launches"]
    if not 1 < len(launches) <= MOST_LAUNCHES:
        return []
    count = max(1, min(sets, MOST_CALLS, int(BLOCK_SECONDS / seconds)))
    subject = PlanSubject(runner, timeout)
    behind = [0.0]
    for first in range(1, len(launches) + 1):
        runner.request({"op": "only", "which": "every", "first": first, "count": count}, timeout)
        subject.wake()
        behind.append(min(_seconds(subject, count) for _ in range(ROUNDS)))
    pairs = zip(launches, behind, behind[1:], strict=False)
    return [{"name": launch["symbol"], "ms": max(after - before, 0.0) * 1e3} for launch, before, after in pairs]


def _seconds(subject: PlanSubject, count: int) -> float:
    own, device = subject.both(0, count)
    return (device or own) / count
