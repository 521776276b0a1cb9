"""A reply is shown while it is written, and ended where it repeats itself."""

from __future__ import annotations

import pytest

from kernel_assistant.agent.replies.watch import EVERY_SECONDS, REPEATED_CHARACTERS, ReplyWatch, repeats_itself
from kernel_assistant.events import AnyEvent, Progress
from kernel_assistant.policy.client import ReplySoFar
from tests.agent.models import NORM

PASSAGE = "The kernel should read each row once and keep it in registers. "
TABLE = "static const float zeros[] = {" + "0.0f, " * 200 + "};\n"


@pytest.mark.parametrize("passage", [PASSAGE, "ab", "\n", NORM, "x" * 300 + "\n"])
def test_a_passage_again_and_again(passage: str) -> None:
    assert repeats_itself("I begin. " + passage * (REPEATED_CHARACTERS // len(passage) + 6))
    assert repeats_itself(
        "I begin. " + passage * (REPEATED_CHARACTERS // len(passage) + 6) + passage[: len(passage) // 2]
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "short",
        NORM,
        NORM * 3,
        NORM + TABLE,
        TABLE,
        "".join(f"{PASSAGE}{number}. " for number in range(200)),
        PASSAGE * 100 + "At last I write it.",
    ],
)
def test_what_goes_on(text: str) -> None:
    assert not repeats_itself(text)


def test_signs_of_life() -> None:
    clock, events = [100.0], list[AnyEvent]()
    watch = ReplyWatch(events.append, 3, lambda: clock[0])
    watch.waiting()
    clock[0] += EVERY_SECONDS + 1
    watch.waiting()
    watch.waiting()
    assert not watch.seen(ReplySoFar("first", 1, 0.0))
    clock[0] += EVERY_SECONDS + 1
    watch.waiting()
    assert not watch.seen(ReplySoFar("<think>\nfirst line\n  second line\n", 120, 4.0))
    assert not watch.seen(ReplySoFar("<think>\nfirst line\n  second line\nthird", 121, 4.1))
    assert [event.message for event in events if isinstance(event, Progress)] == [
        "model, turn 3: nothing yet, 6 s",
        "model, turn 3: 120 tokens, 30 a second: second line",
    ]
    assert watch.text.endswith("third")
    assert watch.seen(ReplySoFar(PASSAGE * 60, 900, 30.0))
