"""Limits of an episode, and its phases: the policies that search within these limits."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.policy.base import Policy
from kernel_assistant.records import Step


@dataclass(frozen=True)
class Budget:
    """Limits of one episode. `seconds` is wall time for the search: once it is over, the remaining candidates of a turn
    are skipped. Confirmation comes after the search (docs/session.md).

    The search ends early if a candidate is `target_speedup` times as fast as torch.compile in the quick tier (None: no
    such goal), after `patience` turns without a better candidate, or once verifying and profiling have taken
    `device_seconds`.
    """

    seconds: float = 120.0
    turns: int = 200
    target_speedup: float | None = None
    patience: int = 8
    device_seconds: float = float("inf")


@dataclass(frozen=True)
class Phase:
    """Policies that search at the same time. Several policies need an environment that is safe for threads.

    The budget's seconds count from the start of the episode. `steps` are those that were measured before a crash.
    `says` is shown to the user when the phase begins.
    """

    policies: tuple[Policy, ...]
    budget: Budget
    steps: tuple[Step, ...] = ()
    says: str = ""
