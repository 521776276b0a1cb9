"""What an episode has tried so far, by candidate hash."""

from __future__ import annotations

import threading

from kernel_assistant.records import Candidate, Evaluation, Step

#: A finalist this close to the best in the quick tier is measured in full as well.
CLOSE = 1.03
FINALISTS = 3
NEVER = float("inf")


class Standing:
    """The best time of all searches of an episode, for what is shown. Searches may run side by side."""

    def __init__(self, ms: float = NEVER) -> None:
        self.ms = ms
        self._lock = threading.Lock()

    def takes(self, evaluation: Evaluation) -> bool:
        """Whether this one is the best so far; it then is what the next ones are compared with."""
        with self._lock:
            better = evaluation.correct and evaluation.timing is not None and evaluation.timing.candidate_ms < self.ms
            if better and evaluation.timing is not None:
                self.ms = evaluation.timing.candidate_ms
            return better


class Tried:
    """Candidates with their quick evaluations."""

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
        """Those that were not tried yet, each once."""
        unseen = {candidate.hash(): candidate for candidate in candidates}
        return tuple(candidate for key, candidate in unseen.items() if key not in self.candidates)

    @property
    def best_ms(self) -> float:
        """Time of the fastest correct candidate, infinite if there is none."""
        return min(map(self._ms, self._evaluations), default=NEVER)

    def finalists(self) -> list[Candidate]:
        """The fastest correct candidates, those first that deserve the full tier."""
        correct = [key for key in self._evaluations if self._ms(key) < NEVER]
        return [self.candidates[key] for key in sorted(correct, key=self._ms)[:FINALISTS]]

    def is_close(self, candidate: Candidate) -> bool:
        """Whether the quick tier cannot tell it from the best."""
        return self._ms(candidate.hash()) <= CLOSE * self.best_ms

    def _ms(self, key: str) -> float:
        evaluation = self._evaluations[key]
        return evaluation.timing.candidate_ms if evaluation.correct and evaluation.timing else NEVER
