"""A cache of the evaluations of one open task, which the task's conversations share."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kernel_assistant.environment.session import Environment
from kernel_assistant.records import Candidate, Evaluation, Tier
from kernel_assistant_training.nominal import nominal_times


class EvaluationCache:
    """Evaluates each candidate only once per tier (how thorough the evaluation is) and keeps the result. A repeated
    evaluation has empty `seconds`. If `clock` is "nominal", candidates are only verified and their times are computed
    by `nominal.py`, not measured."""

    def __init__(self, environment: Environment, clock: str = "measured") -> None:
        self.environment, self._clock = environment, clock
        self._evaluations: dict[tuple[str, Tier], Evaluation] = {}

    def evaluate(self, candidates: Sequence[Candidate], tier: Tier) -> tuple[Evaluation, ...]:
        """Returns one evaluation for each candidate, in order. `tier` says how thorough they are."""
        return tuple(self._one(candidate, tier) for candidate in candidates)

    def _one(self, candidate: Candidate, tier: Tier) -> Evaluation:
        key = candidate.hash(), tier
        known = self._evaluations.get(key)
        if known is not None:
            return msgspec.structs.replace(known, seconds={})
        if self._clock == "nominal":
            evaluation = nominal_times(self.environment.evaluate([candidate], Tier.verify)[0], self.environment.graph)
        else:
            evaluation = self.environment.evaluate([candidate], tier)[0]
        self._evaluations[key] = evaluation
        return evaluation
