"""Measures the share of a plan's time that generated kernels take; the rest are calls of libraries and of PyTorch."""

from __future__ import annotations

from typing import Any

from ..running.runner_client import RunnerClient
from .timing import PlanSubject

#: Most calls, and their seconds, from which the share of time in our kernels is computed for each kind of launch.
SHARE_CALLS = 64
SHARE_SECONDS = 1.0


def share_of_kernels(runner: RunnerClient, plan: dict[str, Any], sets: int, seconds: float, timeout: float) -> float:
    """Returns the share of a call's time that generated kernels take, between 0 and 1. Each kind of launch (kernels,
    libraries, residual calls of PyTorch) is timed alone on the same `sets` sets (copies of inputs and outputs).

    `seconds` is the time of a call. Afterwards the sets have to be bound to the runner again, unless the plan has only
    kernels: then nothing is timed, and the share is 1."""
    if only_kernels(plan):
        return 1.0
    kinds = {_kind(launch) for launch in plan["launches"]}
    spent: dict[str, float] = {}
    count = share_calls(sets, seconds)
    subject = PlanSubject(runner, timeout)
    for kind in sorted(kinds):
        runner.request({"op": "only", "which": kind, "count": count}, timeout)
        subject.wake()
        own, device = subject.both(0, count)
        spent[kind] = max(device or own, 0.0)
    return spent.get("kernels", 0.0) / total if (total := sum(spent.values())) > 0 else 0.0


def only_kernels(plan: dict[str, Any]) -> bool:
    """Whether all launches of a plan are generated kernels."""
    return {_kind(launch) for launch in plan["launches"]} == {"kernels"}


def share_calls(sets: int, seconds: float) -> int:
    """Returns the number of sets (copies of inputs and outputs) on which each kind of launch is timed, if a call takes
    `seconds`.

    Before that, one request makes a complete call on each of these sets: if these were many slow calls, the runner
    would seem to hang, and the results of all calls are kept in memory."""
    return max(1, min(sets, SHARE_CALLS, int(SHARE_SECONDS / seconds)))


def _kind(launch: dict[str, Any]) -> str:
    """Returns the kind of a launch, as the runner's request `only` names it: "libraries", "residual" or "kernels"."""
    return "libraries" if launch.get("library") else "residual" if launch.get("call") else "kernels"
