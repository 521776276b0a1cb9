"""The interface of policies, which propose candidates: what a policy sees in each turn, and what it may answer. The
loop runs any `Policy` until there is a stop reason (`StopReason`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kernel_assistant.records import Baseline, Candidate, Numerics, OpGraph, Step, Tier
from kernel_assistant.targets.base import DeviceFacts


@dataclass(frozen=True)
class EpisodeView:
    """The information that a policy gets in each turn. `remaining` is wall time left in seconds; `numerics` says how
    far results may be from float64."""

    graph: OpGraph
    target: str
    device: DeviceFacts
    baseline: Baseline
    steps: tuple[Step, ...]
    remaining: float
    numerics: Numerics = Numerics.kernelbench


@dataclass(frozen=True)
class PolicyAction:
    """The policy's action in one turn: candidates to evaluate in `tier`, or `finished` if there is nothing more to try.

    `conversation` is the number (from 1) of the conversation that the action comes from, 0 for none.
    """

    message: str
    candidates: tuple[Candidate, ...] = ()
    finished: bool = False
    tier: Tier = Tier.quick
    conversation: int = 0


class Policy(Protocol):
    """Chooses the next candidates from the measurements so far. Must be deterministic for a given view and seed."""

    name: str

    def supports(self, graph: OpGraph, target: str) -> str | None:
        """Returns None if this policy can write kernels for the graph, else the reason in one line."""

    def step(self, view: EpisodeView) -> PolicyAction: ...
