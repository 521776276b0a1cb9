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
        """One move of one search is judged as a whole before the next."""
        with self.lock:
            yield from self._environment.iterate(candidates, tier)

    def confirm(self, candidate: Candidate) -> Evaluation:
        with self.lock:
            return self._environment.confirm(candidate)
