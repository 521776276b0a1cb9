"""What a teacher intends to say in one conversation, and how it takes what it hears. Pure.

A lesson is a list of sayings. Which comes next depends on the observation alone, so that a model that reads the
conversation can come to the same decision.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random

from kernel_assistant.agent.directives import UNITS, read_constants
from kernel_assistant.serving.template import write_call
from kernel_assistant_training.episodes.faults import faulty
from kernel_assistant_training.episodes.slow import slowed

FINISH = write_call("finish", "{}")
LANGUAGE = {"cuda": "cuda", "cpu": "cpp"}
#: At this share of the roofline there is nothing left to try.
NEAR_FLOOR = 0.9
#: Shares of the lessons that have a fault, a second one behind it, a slow schedule first, another try at the end.
FAULTS, SECOND_FAULT, SLOW, TRY = 0.55, 0.1, 0.3, 0.25
#: Lessons with a fault about one task for each without: some offer few others.
MOST_FAULTS = 1.25
#: Of the slow ones, how many are made slow on purpose and not another of the teacher's schedules.
SLOWED = 0.6
_SET = re.compile(r"^\s*// set:.*$", re.MULTILINE)
_OK = re.compile(r"^ok (\S+) .*\bfloor (\S+)")


class Kind(str, Enum):
    """What a saying is. A `fault` must be found wrong; everything else must be right."""

    fault = "fault"
    slow = "slow"
    answer = "answer"
    attempt = "try"
    finish = "finish"


@dataclass(frozen=True)
class Saying:
    """One reply of the teacher; `source` is what it comes to, `fault` what is wrong with it: not to be learned."""

    kind: Kind
    text: str
    source: str = ""
    fault: str = ""


@dataclass(frozen=True)
class Lesson:
    """`sayings` without the `finish` at the end. `behaviours` are what it is meant to show."""

    sayings: tuple[Saying, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """What is written, in order."""
        return tuple(one.source for one in self.sayings)

    @property
    def begins_with_fault(self) -> bool:
        return self.sayings[0].kind is Kind.fault

    @property
    def behaviours(self) -> tuple[str, ...]:
        """Names in order; ("first",) where the first write is all there is."""
        named = [one.fault or one.kind.value for one in self.sayings if one.kind is not Kind.answer]
        return tuple(named) or ("first",)

    def next(self, place: int, observation: str) -> Saying | None:
        """What follows saying number `place` when `observation` was heard; None where that contradicts the lesson."""
        said = self.sayings[place]
        right = observation.startswith("ok ")
        if right == (said.kind is Kind.fault) or (said.fault and near_floor(observation)):
            return None
        if place + 1 == len(self.sayings) or (right and near_floor(observation)):
            return Saying(Kind.finish, FINISH)
        return self.sayings[place + 1]


def lesson(sources: Sequence[str], target: str, random: Random, faults: float = FAULTS) -> Lesson:
    """A lesson about right answers, the best guess first. Raises ValueError where there is none."""
    if not sources:
        raise ValueError("a lesson needs an answer")
    others = list(sources[1:])
    first, kind, how = sources[0], Kind.answer, ""
    if random.random() < SLOW:
        slow = slowed(sources[0], target, random) if not others or random.random() < SLOWED else None
        if slow is not None:
            first, kind, how = slow, Kind.slow, "slowed"
        elif others:
            first, kind = others.pop(random.randrange(len(others))), Kind.slow
    said = _mistakes(first, target, random, faults)
    said.append(Saying(kind, fence(first, target), first, how))
    if kind is Kind.slow:
        said.append(_changed(Kind.answer, first, sources[0], target))
    if others and random.random() < TRY:
        said.append(_changed(Kind.attempt, sources[0], random.choice(others), target))
    return Lesson(tuple(said))


def lessons(sources: Sequence[str], target: str, random: Random, count: int, faults: float = FAULTS) -> list[Lesson]:
    """Different lessons about the same right answers, `count` at most. Raises ValueError where there is none."""
    found: dict[tuple[str, ...], Lesson] = {}
    broken = 0
    for _ in range(6 * count):
        one = lesson(sources, target, random, faults)
        room = MOST_FAULTS * (len(found) - broken) + 1 - broken
        if one.sources in found or (one.begins_with_fault and room < 1):
            continue
        found[one.sources] = one
        broken += one.begins_with_fault
        if len(found) == count:
            break
    return list(found.values())


def fence(source: str, target: str) -> str:
    """The reply whose candidate is `source`."""
    return f"```{LANGUAGE[target]}\n{source.rstrip()}\n```"


def near_floor(observation: str) -> bool:
    found = _OK.match(observation)
    return found is not None and float(found[2]) >= NEAR_FLOOR * float(found[1])


def candidate_file(target: str) -> str:
    """Where the compact profile keeps the source."""
    return "kernel" + UNITS[target][0]


def _mistakes(source: str, target: str, random: Random, share: float) -> list[Saying]:
    """No, one or two faulty versions of a source, none like the one before."""
    found: list[Saying] = []
    while len(found) < 2 and random.random() < (SECOND_FAULT if found else share):
        wrong = faulty(source, target, random)
        if wrong is None or any(wrong.source == one.source for one in found):
            break
        found.append(Saying(Kind.fault, fence(wrong.source, target), wrong.source, wrong.fault))
    return found


def _changed(kind: Kind, before: str, after: str, target: str) -> Saying:
    """`after`, said as a `plan:` line where only constants differ from `before`."""
    if _SET.sub("", before, count=1) == _SET.sub("", after, count=1):
        old, new = (read_constants(found[0]) if (found := _SET.search(text)) else {} for text in (before, after))
        changes = {name: value for name, value in new.items() if old.get(name) != value}
        if changes and set(old) == set(new):
            return Saying(kind, "plan: " + " ".join(f"{name}={value}" for name, value in changes.items()), after)
    return Saying(kind, fence(after, target), after)
