"""How an episode ended, in one word: what a log says of why a reward is what it is. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from kernel_assistant.records import Outcome, StopReason
from kernel_assistant_training.ppo.trajectory import Trajectory

#: Of what was judged last, where nothing was right. What was right and earned nothing was wrong in the full protocol.
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
    """One of `WORDS`: "void" (the judge was lost, or other work disturbed every measurement); "right" (it earned
    something); "cut_off" (the last reply was as long as one may be, or the conversation full); what became of the last
    candidate; "unread" (its last reply asked for something that could not be read); "nothing" (it asked for nothing, or
    finished without a candidate)."""
    if one.void:
        return "void"
    if one.reward.correct:
        return "right"
    if one.cut_off or one.stop == StopReason.tokens.value:
        return "cut_off"
    if one.outcomes:
        return _OF_OUTCOME[one.outcomes[-1]]
    return "unread" if one.calls[-1:] == ("schema",) else "nothing"


def endings(found: Iterable[Trajectory]) -> dict[str, int]:
    """`ended_WORD` of each word; together as many as there are episodes."""
    counted = Counter(map(ended, found))
    return {f"ended_{word}": counted[word] for word in WORDS}
