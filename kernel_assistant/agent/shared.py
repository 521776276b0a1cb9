"""One environment for several searches at once: whoever has something to be judged waits for the device."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from kernel_assistant.agent.judging import Judging
from kernel_assistant.records import Baseline, Candidate, Evaluation, Tier


class SharedEnvironment:
    """`Judging` that several threads may use. `lock` is held while anything is built or measured."""

    def __init__(self, environment: Judging) -> None:
        self.task, self.graph, self.device = environment.task, environment.graph, environment.device
        self.lock = threading.RLock()
        self._environment = environment

    def baseline(self, *, compiled: bool) -> Baseline:
        with self.lock:
            return self._environment.baseline(compiled=compiled)

    def iterate(self, candidates: Sequence[Candidate], tier: Tier) -> Iterator[Evaluation]:
        """Others may come in between two candidates. Nothing is held while the caller has the word."""
        evaluations = iter(self._environment.iterate(candidates, tier))
        for _ in candidates:
            with self.lock:
                evaluation = next(evaluations)
            yield evaluation

    def confirm(self, candidate: Candidate) -> Evaluation:
        with self.lock:
            return self._environment.confirm(candidate)
