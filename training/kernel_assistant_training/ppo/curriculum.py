"""A curriculum from tasks of one operator to tasks of five, by pass rate. Pure; docs/training.md has the rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

from kernel_assistant.records.codec import Record

#: Number of episodes of tasks with the newest number of operators that a decision needs.
EPISODES = 32
#: Weight of these tasks, relative to each smaller number of operators.
NEWEST = 2.0


class CurriculumProgress(Record, frozen=True, kw_only=True):
    """Tasks have at most `operators` operators; 0 means that there is no curriculum. Since the last decision,
    `episodes` episodes had exactly `operators` operators, and `passed` of these had a right candidate.
    """

    operators: int = 0
    episodes: int = 0
    passed: int = 0

    @property
    def pass_rate(self) -> float | None:
        """The share of these episodes that passed; None before there are any."""
        return self.passed / self.episodes if self.episodes else None

    def weights(self, numbers: Iterable[int]) -> dict[int, float]:
        """The relative weight with which tasks of each of these numbers of operators are drawn."""
        if not self.operators:
            return dict.fromkeys(numbers, 1.0)
        return {one: NEWEST if one == self.operators else 1.0 for one in numbers if one <= self.operators}

    def after(self, played: Iterable[tuple[int, bool]]) -> Self:
        """The progress after these episodes: (operators, whether a candidate was right)."""
        newest = [passed for operators, passed in played if operators == self.operators]
        return type(self)(
            operators=self.operators, episodes=self.episodes + len(newest), passed=self.passed + sum(newest)
        )

    def looked_at(self, threshold: float, numbers: Sequence[int]) -> Self:
        """The progress after a decision, which is made once `EPISODES` episodes were counted: it moves to the next of
        `numbers` (ascending) if the pass rate is at least `threshold`. The counts begin anew in either case.
        """
        if self.episodes < EPISODES:
            return self
        harder = [one for one in numbers if one > self.operators]
        opens = self.passed >= threshold * self.episodes and harder
        return type(self)(operators=harder[0] if opens else self.operators)
