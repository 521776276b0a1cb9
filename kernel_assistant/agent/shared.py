"""Lets several searches use one environment at the same time: a search waits while another one uses the device.

Small models often write the same source in several conversations; it is evaluated in the quick tier only once.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence

from kernel_assistant.agent.evaluator import Evaluator
from kernel_assistant.environment.repeated_measurement import MOST_LOOKS
from kernel_assistant.records import Baseline, Candidate, Evaluation, Tier
from kernel_assistant.records.counters import KernelCounters


class SharedEnvironment:
    """An `Evaluator` that several threads may use. It holds `lock` while candidates are built or measured."""

    def __init__(self, environment: Evaluator) -> None:
        self.task, self.graph, self.device = environment.task, environment.graph, environment.device
        self.lock = threading.RLock()
        self._environment = environment
        self._quick: dict[str, Evaluation] = {}

    def baseline(self, *, compiled: bool) -> Baseline:
        with self.lock:
            return self._environment.baseline(compiled=compiled)

    def wait_for_compile(self, seconds: float) -> bool:
        return self._environment.wait_for_compile(seconds)

    def iterate(self, candidates: Sequence[Candidate], tier: Tier) -> Iterator[Evaluation]:
        """Yields the evaluation of one candidate after another. Between two of them, while the caller handles a result,
        the lock is free."""
        evaluations: Iterator[Evaluation] = iter(())
        fresh: list[Candidate] = []
        for index, candidate in enumerate(candidates):
            with self.lock:
                if not index:
                    # Only now, with the lock held: another search may just have evaluated the same candidate.
                    fresh = [one for one in candidates if tier is not Tier.quick or one.hash() not in self._quick]
                    evaluations = iter(self._environment.iterate(fresh, tier))
                evaluation = next(evaluations) if candidate in fresh else self._quick[candidate.hash()]
                if tier is Tier.quick:
                    self._quick[candidate.hash()] = evaluation
            yield evaluation

    def confirm(self, candidate: Candidate, *, looks: int = MOST_LOOKS, until: float = math.inf) -> Evaluation:
        with self.lock:
            return self._environment.confirm(candidate, looks=looks, until=until)

    def counters(self, candidate: Candidate) -> tuple[KernelCounters, ...]:
        with self.lock:
            return self._environment.counters(candidate)
