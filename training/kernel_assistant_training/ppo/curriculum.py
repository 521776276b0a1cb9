"""Decides how many operators the drawn tasks have: first one, then more, up to five, as the pass rate rises. Has no
side effects; docs/training.md has the rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

from kernel_assistant.records.codec import Record

#: Number of episodes of tasks with the newest number of operators that a decision needs.
EPISODES = 32
#: Weight of these tasks, relative to each smaller number of operators.
NEWEST = 2.0


class CurriculumProgress(Record, frozen=True, kw_only=True):
    """The progress of the curriculum. Tasks have at most `operators` operators; 0 means that there is no curriculum.
    `episodes` counts the episodes since the last decision whose task had exactly `operators` operators; `passed` counts
    those of them in which a candidate was correct."""

    operators: int = 0
    episodes: int = 0
    passed: int = 0

    @property
    def pass_rate(self) -> float | None:
        """The share of the counted episodes that passed; None if none was counted."""
        return self.passed / self.episodes if self.episodes else None

    def weights(self, numbers: Iterable[int]) -> dict[int, float]:
        """Returns number of operators → relative weight with which tasks of that size are drawn. Leaves out numbers
        larger than the curriculum allows."""
        if not self.operators:
            return dict.fromkeys(numbers, 1.0)
        return {one: NEWEST if one == self.operators else 1.0 for one in numbers if one <= self.operators}

    def after(self, played: Iterable[tuple[int, bool]]) -> Self:
        """Returns the progress after the episodes `played`: pairs of the number of operators and whether a candidate
        was correct."""
        newest = [passed for operators, passed in played if operators == self.operators]
        return type(self)(
            operators=self.operators, episodes=self.episodes + len(newest), passed=self.passed + sum(newest)
        )

    def looked_at(self, threshold: float, numbers: Sequence[int]) -> Self:
        """Returns the progress after a decision; without a decision, if fewer than `EPISODES` episodes were counted,
        returns itself. If the pass rate is at least `threshold`, `operators` becomes the next larger one of `numbers`
        (ascending). After a decision the counts start from 0."""
        if self.episodes < EPISODES:
            return self
        harder = [one for one in numbers if one > self.operators]
        opens = self.passed >= threshold * self.episodes and harder
        return type(self)(operators=harder[0] if opens else self.operators)
