"""Selects the episodes for rejection fine-tuning of a model. Has no side effects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernel_assistant_training.conversation import Tokens
from kernel_assistant_training.ppo.trajectory import Trajectory


@dataclass(frozen=True)
class SelectedTrajectories:
    """The trajectories that were `kept`, and reason → number of trajectories that were left out. Reasons are those of
    `against`, "known" (same tokens or replies as another one) and "enough" (the task has enough already)."""

    kept: list[Trajectory]
    left_out: dict[str, int]


def choose(trajectories: Iterable[Trajectory], most_each: int = 4) -> SelectedTrajectories:
    """Selects the trajectories for which `against` returns no reason. Of each task at most `most_each` different
    trajectories are kept, those with the highest rewards, so that easy tasks do not dominate."""
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
    """Returns the reason why an episode is not used for training, "" if there is none: "void" (the judge was lost or
    all measurements were disturbed), "reward" (the reward is not above 0), "schema" (a call could not be parsed),
    "loop" (the episode repeats itself, or a reply has no call)."""
    if one.void:
        return "void"
    if one.reward.value <= 0:
        return "reward"
    if "schema" in one.calls:
        return "schema"
    return "loop" if loops(one) else ""


def loops(one: Trajectory) -> bool:
    """Whether an episode repeats a reply or a candidate, or has a reply without a tool call."""
    replies = _replies(one)
    return len(set(replies)) < len(replies) or len(set(one.candidates)) < len(one.candidates) or "idle" in one.calls


def learned(one: Trajectory) -> Tokens:
    """Returns the tokens of a trajectory. Tokens of correct replies and of the final call of `finish` are marked for
    the loss. A repaired mistake stays in the context, so that the model learns to repair it but does not learn to make
    it. Other tool calls are in the loss if the next evaluation after them was correct."""
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
