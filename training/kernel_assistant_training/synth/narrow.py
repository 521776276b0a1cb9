"""Restricts the synthesis to tasks of a few kinds of steps, which a small model learns within minutes."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Self

from kernel_assistant.errors import UsageError
from kernel_assistant.records import OpGraph
from kernel_assistant_training.synth.sampler import LEVELS, MORE, sampled
from kernel_assistant_training.synth.steps import STEPS, Step


@dataclass(frozen=True)
class Narrow:
    """A restriction of synthesised tasks. `only` names the families and steps (functions that add operators) that tasks
    may use, all if it is empty; a task has at most `most` steps."""

    only: frozenset[str] = frozenset()
    most: int = LEVELS[-1]

    @classmethod
    def of(cls, names: str, most: int) -> Self:
        """Parses names separated by commas; "" allows all steps. Raises UsageError if a name is unknown or `most` is no
        valid number of steps."""
        only = frozenset(names.split(",")) if names else frozenset()
        known = {one.name for steps in STEPS.values() for one in steps} | STEPS.keys()
        unknown = sorted(only - known)
        if unknown:
            raise UsageError(f"no step is called {', '.join(unknown)}", f"families: {', '.join(sorted(STEPS))}")
        if most not in LEVELS:
            raise UsageError(f"a task has no {most} steps", f"pass {LEVELS[0]} to {LEVELS[-1]}")
        return cls(only, most)

    @property
    def everything(self) -> bool:
        return self == Narrow()

    def sample(self, random: Random, level: int) -> OpGraph:
        """Returns a random task of `level` steps, or of `most` steps if `level` is larger."""
        return self.sampled(random, level)[0]

    def sampled(
        self, random: Random, level: int, more: float = MORE, favoured: frozenset[str] = frozenset()
    ) -> tuple[OpGraph, tuple[Step, ...]]:
        """Returns a random task, and the steps that made it; `more` and `favoured` are as for the sampler's
        `sampled`."""
        return sampled(random, min(level, self.most), more, self.only, favoured)
