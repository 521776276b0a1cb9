"""Plays lessons in the real environment: tests the observations, the stored episodes, and which replies are learned."""

from __future__ import annotations

import pytest

from kernel_assistant.agent.directives import candidate_from
from kernel_assistant.environment.builds.compile import Binary, CompileFailure
from kernel_assistant.generator.emit import canonical_text
from kernel_assistant.generator.search.search import first_guess
from kernel_assistant.records.canonical import canonical
from kernel_assistant_training.episodes.client import LessonFailed
from kernel_assistant_training.episodes.play import play
from kernel_assistant_training.lessons.lesson import FINISH, Lesson, PlannedReply, ReplyKind, fence
from tests.episodes.written import CPU, SLOW

BROKEN = CPU.replace("* s0 *", "* scale *")
WRONG = CPU.replace("v * v", "v + v")
UNREAD = CPU.replace("out0, rows", "out, rows")


def say(source: str, kind: ReplyKind = ReplyKind.answer, fault: str = "") -> PlannedReply:
    return PlannedReply(kind, fence(source, "cpu"), source, fault)


def fault(source: str) -> PlannedReply:
    return say(source, ReplyKind.fault, "a fault")


@pytest.fixture
def played(opened, tmp_path):
    def run(*sayings: PlannedReply):
        environment = opened.environment
        return play(opened.judged, Lesson(sayings), environment.baseline(compiled=False), tmp_path / "workspace")

    return run


def heard(played):
    return [message.content for message in played.messages if message.role == "tool"]


def test_a_first_write_and_its_prompt(opened, played):
    found = played(say(CPU))
    roles = [message.role for message in found.messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
    assert found.messages[1].content.startswith("x0 f32[B,D0]\np0 [D0]\n")
    assert "B=640 D0=384 C0=1e-05" in found.messages[1].content
    assert found.messages[2].content == fence(CPU, "cpu")
    assert heard(found)[0].startswith("ok ")
    assert found.messages[-1].content == FINISH
    assert found.losses() == [True, True]
    assert found.best_source == CPU
    assert opened.environment.verify_in_full(found.best).accuracy.shapes_tried > 1
    assert found.best_ms > 0 and found.seconds()["profile"] > 0


def test_faults_are_heard_of_and_not_learned(played):
    found = played(fault(BROKEN), fault(UNREAD), fault(WRONG), say(CPU))
    compiler, plan, wrong, right = heard(found)
    assert compiler.startswith("compile L9 ") and "scale" in compiler
    assert plan.startswith("plan L2 ") and "'out' is no buffer" in plan
    assert wrong.startswith("wrong out0[")
    assert right.startswith("ok ")
    assert found.losses() == [False, False, False, True, True]


def test_a_slow_source_is_followed_by_a_schedule_and_not_learned(opened, played):
    graph = opened.environment.graph
    schedule = first_guess(graph, "cpu", opened.environment.device)
    written = canonical_text(canonical(graph), schedule)
    found = played(say(SLOW, ReplyKind.slow), PlannedReply(ReplyKind.answer, f"plan: {schedule.text()}", written))
    slow, fast = (float(said.split()[1]) for said in heard(found))
    assert found.losses() == [False, True, True]
    assert found.best_ms == pytest.approx(fast, rel=0.01) != slow


def test_what_contradicts_a_lesson_ends_it(played):
    with pytest.raises(LessonFailed) as harmless:
        played(fault(CPU), say(CPU))
    assert harmless.value.saying.kind is ReplyKind.fault and harmless.value.observation.startswith("ok ")
    with pytest.raises(LessonFailed) as refused:
        played(say(WRONG))
    assert refused.value.saying.kind is ReplyKind.answer and refused.value.observation.startswith("wrong ")


def test_what_was_begun_is_built_once_and_failures_too(opened, monkeypatch):
    graph = opened.environment.graph
    right, broken, other = (
        candidate_from({"kernel.cpp": text + "// ahead\n"}, graph, "cpu", canonical(graph))
        for text in (CPU, BROKEN, SLOW)
    )
    opened.compiler.begin([right, broken, right])
    built = opened.compiler.build(right)
    assert isinstance(built, Binary) and not built.cached
    failed = opened.compiler.build(broken)
    assert isinstance(failed, CompileFailure)
    assert opened.compiler.build(broken) is failed and opened.compiler.build(right) is built
    opened.compiler.forget([right, broken])
    again = opened.compiler.build(right)
    assert isinstance(again, Binary) and again.cached and again.content == built.content
    assert isinstance(opened.compiler.build(other), Binary)


def test_measuring_is_entered_around_what_is_timed(opened, played):
    opened.environment.baseline(compiled=False)
    before = len(opened.measured)
    first, second = (WRONG.replace("v + v", text) for text in ("v * v * 1.0f", "1.0f * v * v"))
    again = say(first), say(second, ReplyKind.attempt)
    found = played(*again)
    # One candidate or two were timed, depending on how far the first is from the floor; verifying is not timing.
    timed = opened.measured[before:]
    assert timed in (["in", "out"], ["in", "out"] * 2)
    assert found.seconds()["profile"] > 0
    # Another conversation about the same candidates hears the same, and nothing is timed for it.
    repeated = played(*again)
    assert heard(repeated) == heard(found) and opened.measured[before:] == timed
    assert not repeated.seconds()
