"""Tests the replies of lessons, and how lessons react to observations."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from kernel_assistant_training.lessons.lesson import (
    FINISH,
    Lesson,
    PlannedReply,
    ReplyKind,
    fence,
    lesson,
    lessons,
    near_floor,
)
from tests.episodes.written import CPU, CUDA, SLOW

FAR, NEAR = "ok .214 eager .42 floor .12", "ok .125 compile .198 floor .12 regs 40"
OTHER = CPU.replace("ka_rsqrt", "1.0f / ka_sqrt")


def drawn(count=600, faults=0.25):
    return [lesson([CPU, SLOW, OTHER], "cpu", Random(seed), faults) for seed in range(count)]


def test_shares_of_behaviours():
    kinds = Counter(kind for found in drawn() for kind in {saying.kind for saying in found.sayings})
    assert 0.2 < kinds[ReplyKind.fault] / 600 < 0.3
    assert 0.25 < kinds[ReplyKind.slow] / 600 < 0.35
    assert 0.15 < kinds[ReplyKind.attempt] / 600 < 0.35
    assert all(any(saying.source == CPU for saying in found.sayings) for found in drawn())
    twice = [found for found in drawn() if [saying.kind for saying in found.sayings].count(ReplyKind.fault) == 2]
    assert twice and all(found.sayings[0].source != found.sayings[1].source for found in twice)
    assert not any(saying.kind is ReplyKind.fault for found in drawn(faults=0.0) for saying in found.sayings)


def test_behind_a_fault_stands_the_same_source_without_it():
    for found in drawn():
        for saying, following in zip(found.sayings, found.sayings[1:], strict=False):
            if saying.kind is ReplyKind.fault and following.kind is not ReplyKind.fault:
                assert saying.fault and following.source != saying.source
                assert following.source in (CPU, SLOW, OTHER)


def test_a_source_of_a_person_is_written_again():
    texts = {
        (found.sayings[place - 1].source, saying.source): saying.text
        for found in drawn(faults=0.0)
        for place, saying in enumerate(found.sayings)
        if place
    }
    assert texts[SLOW, CPU] == texts[OTHER, CPU] == fence(CPU, "cpu")
    assert texts[CPU, OTHER] == f"```cpp\n{OTHER.rstrip()}\n```"


def test_what_is_heard_decides():
    sayings = (
        PlannedReply(ReplyKind.fault, "a", fault="operator"),
        PlannedReply(ReplyKind.slow, "b"),
        PlannedReply(ReplyKind.answer, "c"),
        PlannedReply(ReplyKind.attempt, "d"),
    )
    found = Lesson(sayings)
    assert found.behaviours == ("operator", "slow", "try")
    assert found.next(0, "wrong out0[1] got 1 want 2") is sayings[1]
    assert found.next(0, FAR) is None
    assert found.next(1, FAR) is sayings[2]
    assert found.next(1, "compile L2 no") is None
    assert found.next(2, NEAR).text == found.next(3, FAR).text == FINISH
    assert Lesson(sayings[2:3]).behaviours == ("first",)


def test_the_floor_is_read_from_the_observation():
    said = (NEAR, FAR, "ok .125 compile .198", "wrong out0[1] got 1 want 2")
    assert [near_floor(one) for one in said] == [True, False, False, False]


def test_a_lesson_needs_an_answer():
    with pytest.raises(ValueError, match="an answer"):
        lesson([], "cpu", Random(0))


def test_another_schedule_is_named_and_the_generator_writes_it():
    other = CUDA.replace("vec=2;", "vec=4;").replace("n * 64", "n * 128")
    found = [lesson([CUDA, other], "cuda", Random(seed), faults=0.0) for seed in range(60)]
    slow = next(one for one in found if one.behaviours[0] == "slow")
    assert slow.sayings[0].text == fence(other, "cuda")
    assert slow.sayings[1].text == f"plan: {CUDA.splitlines()[1].removeprefix('// schedule: ')}"
    assert slow.sayings[1].source == CUDA


def test_lessons_of_a_task_differ_and_some_have_no_fault():
    for sources, least in (([CPU], 3), ([CPU, SLOW, OTHER], 5)):
        found = lessons(sources, "cpu", Random(1), 8)
        assert len({one.sources for one in found}) == len(found) >= least
        broken = [one.sayings[0].kind is ReplyKind.fault for one in found]
        assert 0 < sum(broken) <= 1.5 * (len(found) - sum(broken)) + 1
        flawless = lessons(sources, "cpu", Random(1), 8, faults=0.0)
        assert not any(one.sayings[0].kind is ReplyKind.fault for one in flawless)
    with pytest.raises(ValueError, match="an answer"):
        lessons([], "cpu", Random(0), 8)
