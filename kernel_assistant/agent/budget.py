"""Records of an episode (all work on one task): its limits, and its phases, each a group of policies that search at the
same time."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.policy.base import Policy
from kernel_assistant.records import Step


@dataclass(frozen=True)
class Budget:
    """Limits of one episode. `seconds` is wall time for the search: once it is over, the remaining candidates of a turn
    are skipped. The confirmation of the fastest candidates comes after the search and is not counted (docs/session.md).

    The search ends early if a candidate is `target_speedup` times as fast as torch.compile in the quick tier, the short
    measurement of the search (None: no such goal), after `patience` turns without a better candidate, or once verifying
    and profiling have taken `device_seconds`.
    """

    seconds: float = 120.0
    turns: int = 200
    target_speedup: float | None = None
    patience: int = 8
    device_seconds: float = float("inf")


@dataclass(frozen=True)
class Phase:
    """A group of policies that search at the same time, each in a thread; several of them need an environment that is
    safe for threads.

    The budget's seconds count from the start of the episode. `steps` (one for each turn) were recorded before a crash,
    and the search continues from them. `says` is shown to the user when the phase begins; "" shows nothing.
    """

    policies: tuple[Policy, ...]
    budget: Budget
    steps: tuple[Step, ...] = ()
    says: str = ""
