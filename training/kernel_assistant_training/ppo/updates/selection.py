"""Selects the episodes that a model is fine-tuned on: rejection fine-tuning. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernel_assistant_training.conversation import Tokens
from kernel_assistant_training.ppo.trajectory import Trajectory


@dataclass(frozen=True)
class SelectedTrajectories:
    """`kept` trajectories, and for each reason the number left out."""

    kept: list[Trajectory]
    left_out: dict[str, int]


def choose(trajectories: Iterable[Trajectory], most_each: int = 4) -> SelectedTrajectories:
    """The trajectories for which `against` gives no reason: for each task at most `most_each` different ones, those
    with the highest rewards. The limit keeps easy tasks from dominating.
    """
    reasons: Counter[str] = Counter()
    kept: dict[str, list[Trajectory]] = {}
    for one in sorted(trajectories, key=lambda each: (-each.reward.value, each.turns, each.seed)):
        why = against(one) or _crowded(one, kept.get(one.key, []), most_each)
        if why:
            reasons[why] += 1
        else:
            kept.setdefault(one.key, []).append(one)
    return SelectedTrajectories([one for some in kept.values() for one in some], dict(reasons))


def against(one: Trajectory) -> str:
    """The reason why an episode is not learned, "" if there is none: "void" (the judge was lost), "reward" (not above
    0), "schema" (a call could not be parsed), "loop" (it repeats itself, or makes no call)."""
    if one.void:
        return "void"
    if one.reward.value <= 0:
        return "reward"
    if "schema" in one.calls:
        return "schema"
    return "loop" if loops(one) else ""


def loops(one: Trajectory) -> bool:
    """Whether an episode repeats a reply or a candidate, or has a reply without a call."""
    replies = _replies(one)
    return len(set(replies)) < len(replies) or len(set(one.candidates)) < len(one.candidates) or "idle" in one.calls


def learned(one: Trajectory) -> Tokens:
    """The tokens of a trajectory, with those marked that the loss includes: right replies and the final `finish`. A
    repaired mistake stays in the context, so that the model learns to repair it but does not learn to make it. Tool
    calls are learned if the evaluation after them was right.
    """
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
