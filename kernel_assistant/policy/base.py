"""What a policy sees and what it may do. The loop drives any `Policy` to a documented stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kernel_assistant.records import Baseline, Candidate, OpGraph, Step, Tier
from kernel_assistant.targets.base import DeviceFacts


@dataclass(frozen=True)
class EpisodeView:
    """Everything a policy may look at. `remaining` is wall time left in seconds."""

    graph: OpGraph
    target: str
    device: DeviceFacts
    baseline: Baseline
    steps: tuple[Step, ...]
    remaining: float


@dataclass(frozen=True)
class Move:
    """One turn: candidates to evaluate in `tier`, or `finished` when there is nothing more to try.

    `conversation` is the number of the one that it comes from, from 1; 0 for none.
    """

    message: str
    candidates: tuple[Candidate, ...] = ()
    finished: bool = False
    tier: Tier = Tier.quick
    conversation: int = 0


class Policy(Protocol):
    """Chooses the next candidates from what was measured. Must be deterministic for a given view and seed."""

    name: str

    def supports(self, graph: OpGraph, target: str) -> str | None:
        """None if this policy can write the graph, else the one-line reason why not."""

    def step(self, view: EpisodeView) -> Move: ...
