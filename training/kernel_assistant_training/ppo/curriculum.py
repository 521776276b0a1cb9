"""From tasks of one operator to tasks of five, by how many of them are solved. Pure; docs/training.md has the rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

from kernel_assistant.records.codec import Record

#: Episodes of tasks with the newest number of operators that a pass rate is taken of.
EPISODES = 32
#: How often these tasks are drawn, where tasks with each smaller number are drawn once.
NEWEST = 2.0


class Progress(Record, frozen=True, kw_only=True):
    """`operators` at most has a task, 0 without a curriculum; `passed` of `episodes` with that many had a right
    candidate since the rate was last looked at."""

    operators: int = 0
    episodes: int = 0
    passed: int = 0

    @property
    def pass_rate(self) -> float | None:
        """Of the newest episodes, None before there are any."""
        return self.passed / self.episodes if self.episodes else None

    def weights(self, numbers: Iterable[int]) -> dict[int, float]:
        """How often a task of each of these numbers of operators is drawn."""
        if not self.operators:
            return dict.fromkeys(numbers, 1.0)
        return {one: NEWEST if one == self.operators else 1.0 for one in numbers if one <= self.operators}

    def after(self, played: Iterable[tuple[int, bool]]) -> Self:
        """With these episodes: (operators, whether a candidate was right)."""
        newest = [passed for operators, passed in played if operators == self.operators]
        return type(self)(
            operators=self.operators, episodes=self.episodes + len(newest), passed=self.passed + sum(newest)
        )

    def looked_at(self, threshold: float, numbers: Sequence[int]) -> Self:
        """Once there are enough episodes, the next of `numbers` (ascending) opens if the rate is at least `threshold`;
        either way the next look is at episodes that come now."""
        if self.episodes < EPISODES:
            return self
        harder = [one for one in numbers if one > self.operators]
        opens = self.passed >= threshold * self.episodes and harder
        return type(self)(operators=harder[0] if opens else self.operators)
