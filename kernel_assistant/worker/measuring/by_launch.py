"""Measures the time of each launch of a plan: the time of calls that stop after the launch, minus the time of calls
that stop before it.

A launch is not timed alone, because it might wait for ever for a counter that the launch before it resets. A call that
stops after any of its launches can always run."""

from __future__ import annotations

from typing import Any

from ..running.runner_client import RunnerClient
from .timing import PlanSubject

#: Plans with more launches get no such times.
MOST_LAUNCHES = 16
#: Number of measurements; the shortest counts, because other load only adds time.
ROUNDS = 3
BLOCK_SECONDS = 0.003
MOST_CALLS = 64


def times_by_launch(
    runner: RunnerClient, plan: dict[str, Any], sets: int, seconds: float, timeout: float
) -> list[dict[str, Any]]:
    """Returns `name` and `ms` of each launch in order, timed on the `sets` sets (copies of inputs and outputs) that are
    bound in the runner; empty if the plan has one launch or more than `MOST_LAUNCHES`.

    `seconds` is the time of a call. As in a complete call, a launch is faster if the launch before it has left data in
    the cache. Afterwards the sets have to be bound to the runner again."""
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
