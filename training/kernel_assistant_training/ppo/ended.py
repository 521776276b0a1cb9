"""Describes how an episode ended in one word, for the log. Has no side effects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from kernel_assistant.records import Outcome, StopReason
from kernel_assistant_training.ppo.trajectory import Trajectory

#: Words for the outcome of the last candidate, if the episode was not right. A `correct` one that earned nothing was
#: wrong in the full tier.
_OF_OUTCOME: Mapping[str, str] = {
    Outcome.refused.value: "refused",
    Outcome.compile_error.value: "not_compiled",
    **{one.value: "crashed" for one in (Outcome.crashed, Outcome.hung, Outcome.out_of_memory)},
    **{one.value: "wrong" for one in (Outcome.incorrect, Outcome.nondeterministic, Outcome.cheating, Outcome.correct)},
    "residual": "residual",
    Outcome.inconclusive.value: "void",
}
_LAST = ("cut_off", "unread", "nothing", "void")
WORDS = ("right", *(word for word in dict.fromkeys(_OF_OUTCOME.values()) if word not in _LAST), *_LAST)


def ended(one: Trajectory) -> str:
    """Returns how an episode ended, as one of `WORDS`: "void" (the judge was lost, or other work disturbed every
    measurement); "right" (a candidate was correct); "cut_off" (the last reply or the conversation reached its token
    limit); a word for the outcome of the last candidate; "unread" (the last reply's call could not be parsed);
    "nothing" (the model made no call, or finished without a candidate)."""
    if one.void:
        return "void"
    if one.reward.correct:
        return "right"
    if one.cut_off or one.stop == StopReason.tokens.value:
        return "cut_off"
    if one.outcomes:
        return _OF_OUTCOME[one.outcomes[-1]]
    return "unread" if one.calls[-1:] == ("schema",) else "nothing"


def endings(trajectories: Iterable[Trajectory]) -> dict[str, int]:
    """Returns `ended_WORD` → number of episodes that ended with this word, for each of `WORDS`."""
    counted = Counter(map(ended, trajectories))
    return {f"ended_{word}": counted[word] for word in WORDS}
