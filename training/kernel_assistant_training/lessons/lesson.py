"""Plans the replies of one conversation, and chooses the reply that follows an observation (the environment's answer).
The functions have no side effects.

A lesson is a list of replies. Which reply comes next depends on the observation alone, so that a model that reads the
conversation can make the same decision.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random

from kernel_assistant.agent.directives import UNITS
from kernel_assistant.generator.emit import SCHEDULE_MARK
from kernel_assistant.serving.template import write_call
from kernel_assistant_training.lessons.faults import faulty

FINISH = write_call("finish", "{}")
LANGUAGE = {"cuda": "cuda", "cpu": "cpp"}
#: From this share of the roofline on there is nothing left to improve.
NEAR_FLOOR = 0.9
#: Probabilities that a lesson has a fault, a second one after it, a slow schedule first, and another attempt at the
#: end.
FAULTS, SECOND_FAULT, SLOW, TRY = 0.55, 0.1, 0.3, 0.25
#: The largest ratio of lessons with a mistake to lessons without one, for one task.
MOST_FAULTS = 1.25
_OK = re.compile(r"^ok (\S+) .*\bfloor (\S+)")


class ReplyKind(str, Enum):
    """The role of a reply. The candidate of a `fault` must be judged wrong; the candidates of `slow` (a slow schedule),
    `answer` (the first right one) and `attempt` (another try at the end) must be correct. `finish` has no candidate."""

    fault = "fault"
    slow = "slow"
    answer = "answer"
    attempt = "try"
    finish = "finish"


@dataclass(frozen=True)
class PlannedReply:
    """One reply. `text` is the whole reply, `source` its candidate's source. `fault` names the deliberate mistake in
    it, or is ""; the loss does not include a reply with a mistake."""

    kind: ReplyKind
    text: str
    source: str = ""
    fault: str = ""


@dataclass(frozen=True)
class Lesson:
    """The planned replies of a conversation (`sayings`), without the final `finish`. `behaviours` name what the lesson
    demonstrates, such as its mistakes."""

    sayings: tuple[PlannedReply, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """The candidates' sources of the replies, in order."""
        return tuple(one.source for one in self.sayings)

    @property
    def begins_with_fault(self) -> bool:
        return self.sayings[0].kind is ReplyKind.fault

    @property
    def behaviours(self) -> tuple[str, ...]:
        """The names of the mistakes, and the kinds of the other replies, in order and without plain answers; ("first",)
        if all replies are plain answers."""
        named = [one.fault or one.kind.value for one in self.sayings if one.kind is not ReplyKind.answer]
        return tuple(named) or ("first",)

    def next(self, index: int, observation: str) -> PlannedReply | None:
        """Returns the reply that follows reply number `index` and its `observation` (the environment's answer); None if
        the observation contradicts the lesson."""
        reply = self.sayings[index]
        right = observation.startswith("ok ")
        if right == (reply.kind is ReplyKind.fault):
            return None
        if index + 1 == len(self.sayings) or (right and near_floor(observation)):
            return PlannedReply(ReplyKind.finish, FINISH)
        return self.sayings[index + 1]


def lesson(sources: Sequence[str], target: str, random: Random, faults: float = FAULTS) -> Lesson:
    """Returns a random lesson. All `sources` are correct, and the first is expected to be the fastest. `faults` is the
    probability that the lesson begins with a mistake. Raises ValueError without sources."""
    if not sources:
        raise ValueError("a lesson needs an answer")
    others = list(sources[1:])
    first, kind = sources[0], ReplyKind.answer
    if others and random.random() < SLOW:
        first, kind = others.pop(random.randrange(len(others))), ReplyKind.slow
    replies = _mistakes(first, target, random, faults)
    replies.append(PlannedReply(kind, fence(first, target), first))
    if kind is ReplyKind.slow:
        replies.append(_changed(ReplyKind.answer, sources[0], target))
    if others and random.random() < TRY:
        replies.append(_changed(ReplyKind.attempt, random.choice(others), target))
    return Lesson(tuple(replies))


def lessons(sources: Sequence[str], target: str, random: Random, count: int, faults: float = FAULTS) -> list[Lesson]:
    """Returns at most `count` different lessons from the same correct sources. Raises ValueError without sources."""
    chosen: dict[tuple[str, ...], Lesson] = {}
    broken = 0
    for _ in range(6 * count):
        one = lesson(sources, target, random, faults)
        room = MOST_FAULTS * (len(chosen) - broken) + 1 - broken
        if one.sources in chosen or (one.begins_with_fault and room < 1):
            continue
        chosen[one.sources] = one
        broken += one.begins_with_fault
        if len(chosen) == count:
            break
    return list(chosen.values())


def fence(source: str, target: str) -> str:
    """Returns a reply that proposes `source` as the candidate: a fenced code block."""
    return f"```{LANGUAGE[target]}\n{source.rstrip()}\n```"


def near_floor(observation: str) -> bool:
    match = _OK.match(observation)
    return match is not None and float(match[2]) >= NEAR_FLOOR * float(match[1])


def candidate_file(target: str) -> str:
    """Returns the name of a candidate's source file in the compact profile."""
    return "kernel" + UNITS[target][0]


def _mistakes(source: str, target: str, random: Random, share: float) -> list[PlannedReply]:
    """Returns replies with zero to two different faulty versions of a source. `share` is the probability of the first;
    a second follows with probability `SECOND_FAULT`."""
    mistakes: list[PlannedReply] = []
    while len(mistakes) < 2 and random.random() < (SECOND_FAULT if mistakes else share):
        wrong = faulty(source, target, random)
        if wrong is None or any(wrong.source == one.source for one in mistakes):
            break
        mistakes.append(PlannedReply(ReplyKind.fault, fence(wrong.source, target), wrong.source, wrong.fault))
    return mistakes


def _changed(kind: ReplyKind, after: str, target: str) -> PlannedReply:
    """Returns a reply of this `kind` that replaces the previous source by `after`: a `plan:` line with the schedule if
    the generator wrote `after`, else the whole source."""
    for line in after.split("\n", 2)[:2]:
        if line.startswith(SCHEDULE_MARK):
            return PlannedReply(kind, f"plan: {line.removeprefix(SCHEDULE_MARK)}", after)
    return PlannedReply(kind, fence(after, target), after)
