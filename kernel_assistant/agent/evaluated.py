"""The candidates that an episode has evaluated, by their hash."""

from __future__ import annotations

import threading

from kernel_assistant.records import Candidate, Evaluation, Step

#: A finalist this close to the best in the quick tier is measured in full as well.
CLOSE = 1.03
FINALISTS = 3
NEVER = float("inf")


class BestSoFar:
    """The best time in milliseconds among all searches of an episode, for progress reports. Thread-safe."""

    def __init__(self, ms: float = NEVER) -> None:
        self.ms = ms
        self._lock = threading.Lock()

    def takes(self, evaluation: Evaluation) -> bool:
        """Whether the candidate of `evaluation` is the fastest so far. If so, its time is stored for later calls."""
        with self._lock:
            better = evaluation.correct and evaluation.timing is not None and evaluation.timing.ranked_ms < self.ms
            if better and evaluation.timing is not None:
                self.ms = evaluation.timing.ranked_ms
            return better


class EvaluatedCandidates:
    """Candidates by their hash, each with its latest evaluation in the search. The candidates of `steps` are added at
    once."""

    def __init__(self, steps: tuple[Step, ...] = ()) -> None:
        self.candidates: dict[str, Candidate] = {}
        self._evaluations: dict[str, Evaluation] = {}
        for step in steps:
            for candidate, evaluation in zip(step.candidates, step.evaluations, strict=True):
                self.add(candidate, evaluation)

    def add(self, candidate: Candidate, evaluation: Evaluation) -> None:
        self.candidates[candidate.hash()] = candidate
        self._evaluations[candidate.hash()] = evaluation

    def fresh(self, candidates: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
        """Returns those of `candidates` that were not evaluated yet, without duplicates (candidates with the same
        hash)."""
        unseen = {candidate.hash(): candidate for candidate in candidates}
        return tuple(candidate for key, candidate in unseen.items() if key not in self.candidates)

    @property
    def best_ms(self) -> float:
        """The time in milliseconds by which the fastest correct candidate is ranked (`Timing.ranked_ms`); infinite if
        no candidate is correct."""
        return min(map(self._ms, self._evaluations), default=NEVER)

    @property
    def best_call_ms(self) -> float:
        """The time in milliseconds of one call of the fastest correct candidate; infinite if no candidate is
        correct."""
        best = min(self._evaluations, key=self._ms, default=None)
        timing = self._evaluations[best].timing if best is not None and self._ms(best) < NEVER else None
        return timing.candidate_ms if timing else NEVER

    def finalists(self) -> list[Candidate]:
        """Returns the candidates for the full tier: the fastest correct ones, at most FINALISTS, fastest first."""
        correct = [key for key in self._evaluations if self._ms(key) < NEVER]
        return [self.candidates[key] for key in sorted(correct, key=self._ms)[:FINALISTS]]

    def is_close(self, candidate: Candidate) -> bool:
        """Whether the candidate's time is so near to that of the best candidate that the quick tier cannot distinguish
        them."""
        return self._ms(candidate.hash()) <= CLOSE * self.best_ms

    def _ms(self, key: str) -> float:
        evaluation = self._evaluations[key]
        return evaluation.timing.ranked_ms if evaluation.correct and evaluation.timing else NEVER
