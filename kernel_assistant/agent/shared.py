"""One environment for several searches at once: whoever has something to be judged waits for the device.

Small models often write the same source in several conversations: what the quick tier has judged is not judged again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from kernel_assistant.agent.judging import Judging
from kernel_assistant.records import Baseline, Candidate, Evaluation, Tier
from kernel_assistant.records.counters import KernelCounters


class SharedEnvironment:
    """`Judging` that several threads may use. `lock` is held while anything is built or measured."""

    def __init__(self, environment: Judging) -> None:
        self.task, self.graph, self.device = environment.task, environment.graph, environment.device
        self.lock = threading.RLock()
        self._environment = environment
        self._quick: dict[str, Evaluation] = {}

    def baseline(self, *, compiled: bool) -> Baseline:
        with self.lock:
            return self._environment.baseline(compiled=compiled)

    def iterate(self, candidates: Sequence[Candidate], tier: Tier) -> Iterator[Evaluation]:
        """Others may come in between two candidates. Nothing is held while the caller has the word."""
        evaluations: Iterator[Evaluation] = iter(())
        fresh: list[Candidate] = []
        for place, candidate in enumerate(candidates):
            with self.lock:
                if not place:
                    # Not before the others are done with what they are at: it may be the same.
                    fresh = [one for one in candidates if tier is not Tier.quick or one.hash() not in self._quick]
                    evaluations = iter(self._environment.iterate(fresh, tier))
                evaluation = next(evaluations) if candidate in fresh else self._quick[candidate.hash()]
                if tier is Tier.quick:
                    self._quick[candidate.hash()] = evaluation
            yield evaluation

    def confirm(self, candidate: Candidate) -> Evaluation:
        with self.lock:
            return self._environment.confirm(candidate)

    def counters(self, candidate: Candidate) -> tuple[KernelCounters, ...]:
        with self.lock:
            return self._environment.counters(candidate)
