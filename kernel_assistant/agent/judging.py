"""The side of the environment that the loop sees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from kernel_assistant.records import Baseline, Candidate, Evaluation, KernelTask, OpGraph, Tier
from kernel_assistant.records.counters import KernelCounters
from kernel_assistant.targets.base import DeviceFacts


class Judging(Protocol):
    """What the loop needs of an environment."""

    task: KernelTask
    graph: OpGraph
    device: DeviceFacts

    def baseline(self, *, compiled: bool) -> Baseline: ...

    def iterate(self, candidates: Sequence[Candidate], tier: Tier) -> Iterable[Evaluation]: ...

    def confirm(self, candidate: Candidate) -> Evaluation: ...

    def counters(self, candidate: Candidate) -> tuple[KernelCounters, ...]: ...
