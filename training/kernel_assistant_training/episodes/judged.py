"""Evaluations of one open task, which several conversations share."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kernel_assistant.environment.session import Environment
from kernel_assistant.records import Candidate, Evaluation, Tier


class Judged:
    """Identical candidates are judged once. What was judged before took no `seconds`."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self._found: dict[tuple[str, Tier], Evaluation] = {}

    def evaluate(self, candidates: Sequence[Candidate], tier: Tier) -> tuple[Evaluation, ...]:
        """One evaluation for each candidate, in order."""
        return tuple(self._one(candidate, tier) for candidate in candidates)

    def _one(self, candidate: Candidate, tier: Tier) -> Evaluation:
        key = candidate.hash(), tier
        known = self._found.get(key)
        if known is not None:
            return msgspec.structs.replace(known, seconds={})
        self._found[key] = self.environment.evaluate([candidate], tier)[0]
        return self._found[key]
