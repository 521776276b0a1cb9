"""A narrow part of the synthesis: tasks of a few kinds of steps, that a small model learns within minutes."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from random import Random
from typing import Self

from kernel_assistant.errors import UsageError
from kernel_assistant.records import OpGraph
from kernel_assistant_training.synth.sampler import LEVELS, sampled
from kernel_assistant_training.synth.steps import STEPS, Step


@dataclass(frozen=True)
class Narrow:
    """`only` has names of families and steps, none for all; a task has up to `most` steps."""

    only: frozenset[str] = frozenset()
    most: int = LEVELS[-1]

    @classmethod
    def of(cls, names: str, most: int) -> Self:
        """From names with commas between them. Raises UsageError for one that is not known, and where `most` is no
        number of steps."""
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
        """A task of `level` steps, of fewer where that is more than `most`."""
        return self.sampled(random, level)[0]

    def sampled(self, random: Random, level: int, **more: float) -> tuple[OpGraph, tuple[Step, ...]]:
        """The same with the steps that made it; `more` as of the sampler."""
        return sampled(random, min(level, self.most), **more, only=self.only)


def add_narrow(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default="", metavar="NAME,...", help="tasks of these steps or families alone")
    parser.add_argument("--level", type=int, default=LEVELS[-1], help="most steps of a task")


def narrow_of(found: argparse.Namespace) -> Narrow:
    """Raises UsageError."""
    return Narrow.of(found.only, found.level)
