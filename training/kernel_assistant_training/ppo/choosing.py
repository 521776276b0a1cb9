"""Which episodes a model may be fine-tuned on: rejection fine-tuning. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernel_assistant_training.conversation import Tokens
from kernel_assistant_training.ppo.trajectory import Trajectory


@dataclass(frozen=True)
class Chosen:
    """`kept` trajectories, and of each reason how many were left out for it."""

    kept: list[Trajectory]
    left_out: dict[str, int]


def choose(found: Iterable[Trajectory], most_each: int = 4) -> Chosen:
    """Those with nothing against them; of a task at most `most_each` different ones, the most rewarded first, so that
    easy tasks do not drown the others."""
    reasons: Counter[str] = Counter()
    kept: dict[str, list[Trajectory]] = {}
    for one in sorted(found, key=lambda each: (-each.reward.value, each.turns, each.seed)):
        why = against(one) or _crowded(one, kept.get(one.key, []), most_each)
        if why:
            reasons[why] += 1
        else:
            kept.setdefault(one.key, []).append(one)
    return Chosen([one for some in kept.values() for one in some], dict(reasons))


def against(one: Trajectory) -> str:
    """Why an episode is not to be learned from, "" if nothing is wrong with it: "void" (the judge was lost), "reward"
    (not above 0), "schema" (something could not be read), "loop" (it repeats itself, or asks for nothing)."""
    if one.void:
        return "void"
    if one.reward.value <= 0:
        return "reward"
    if "schema" in one.calls:
        return "schema"
    return "loop" if loops(one) else ""


def loops(one: Trajectory) -> bool:
    """Whether an episode says the same thing twice, or nothing."""
    said = _replies(one)
    return len(set(said)) < len(said) or len(set(one.candidates)) < len(one.candidates) or "idle" in one.calls


def learned(one: Trajectory) -> Tokens:
    """Its tokens with those marked that are to be learned: replies that were right, and the end. A fault that was
    repaired stays in sight, so that repairing is learned and the fault is not. Tools are learned with the evaluation
    that they led to."""
    outcomes = list(one.outcomes)
    marks = [False] * one.length
    right = True
    for (begin, count), call in zip(reversed(one.spans), reversed(one.calls), strict=True):
        if call == "evaluate":
            right = outcomes.pop() == "correct"
        marks[begin : begin + count] = [right if call in ("evaluate", "tool") else call == "finish"] * count
    return Tokens(list(one.said().ids), marks)


def _crowded(one: Trajectory, others: Sequence[Trajectory], most: int) -> str:
    if any(other.ids == one.ids or _replies(other) == _replies(one) for other in others):
        return "known"
    return "enough" if len(others) >= most else ""


def _replies(one: Trajectory) -> list[tuple[int, ...]]:
    ids = one.said().ids
    return [ids[begin : begin + count] for begin, count in one.spans]
