"""The interface through which an episode uses an environment, which compiles, verifies and times candidates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from kernel_assistant.records import Baseline, Candidate, Evaluation, KernelTask, OpGraph, Tier
from kernel_assistant.records.counters import KernelCounters
from kernel_assistant.targets.base import DeviceFacts


class Evaluator(Protocol):
    """The attributes and methods of an environment that the loop of an episode uses."""

    task: KernelTask
    graph: OpGraph
    device: DeviceFacts

    def baseline(self, *, compiled: bool) -> Baseline: ...

    def wait_for_compile(self, seconds: float) -> bool: ...

    def iterate(self, candidates: Sequence[Candidate], tier: Tier) -> Iterable[Evaluation]: ...

    def confirm(self, candidate: Candidate, *, looks: int = ..., until: float = ...) -> Evaluation: ...

    def counters(self, candidate: Candidate) -> tuple[KernelCounters, ...]: ...
