"""Evaluations of one open task, which several conversations share."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kernel_assistant.environment.session import Environment
from kernel_assistant.records import Candidate, Evaluation, Tier
from kernel_assistant_training.nominal import nominal_times


class Judged:
    """Identical candidates are judged once. What was judged before took no `seconds`. On the `clock` "nominal" times
    are those of `nominal.py`."""

    def __init__(self, environment: Environment, clock: str = "measured") -> None:
        self.environment, self._clock = environment, clock
        self._found: dict[tuple[str, Tier], Evaluation] = {}

    def evaluate(self, candidates: Sequence[Candidate], tier: Tier) -> tuple[Evaluation, ...]:
        """One evaluation for each candidate, in order."""
        return tuple(self._one(candidate, tier) for candidate in candidates)

    def _one(self, candidate: Candidate, tier: Tier) -> Evaluation:
        key = candidate.hash(), tier
        known = self._found.get(key)
        if known is not None:
            return msgspec.structs.replace(known, seconds={})
        found = self.environment.evaluate([candidate], tier)[0]
        self._found[key] = nominal_times(found, self.environment.graph) if self._clock == "nominal" else found
        return self._found[key]
