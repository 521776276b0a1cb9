"""What is written and what is timed take turns."""

from __future__ import annotations

import threading

import pytest

from kernel_assistant.errors import Cancelled
from kernel_assistant.serving import quiet
from kernel_assistant.serving.embedded import EmbeddedModel, Sampling
from kernel_assistant.serving.quiet import PROCESSOR, Quiet


def _never() -> bool:
    return False


def test_what_is_timed_waits_for_what_has_begun_and_nothing_begins_meanwhile():
    turns, said = Quiet(), []
    begun, may_end, timed, over = (threading.Event() for _ in range(4))

    def write_first():
        with turns.writing(_never):
            begun.set()
            may_end.wait()
            said.append("first")

    def write_late():
        with turns.writing(_never):
            said.append("late")

    def time():
        with turns:
            said.append("timed")
            timed.set()
            over.wait()

    first, timing, late = (threading.Thread(target=one) for one in (write_first, time, write_late))
    first.start()
    begun.wait()
    timing.start()
    while not turns.waited_for:
        pass
    late.start()
    late.join(0.3)
    assert said == []
    may_end.set()
    timed.wait()
    late.join(0.3)
    assert said == ["first", "timed"]
    over.set()
    for thread in (first, timing, late):
        thread.join()
    assert said == ["first", "timed", "late"]


def test_an_engine_that_hangs_holds_nobody_up(monkeypatch):
    monkeypatch.setattr(quiet, "PATIENCE_SECONDS", 0.05)
    turns = Quiet()
    with turns.writing(_never), turns:
        pass


def test_a_conversation_that_waits_can_be_cancelled():
    turns = Quiet()
    with turns, pytest.raises(Cancelled, match="while a kernel was timed"), turns.writing(lambda: True):
        raise AssertionError("nothing is written while something is timed")


def test_the_embedded_model_writes_nothing_while_something_is_timed(tiny, engine):
    replies = []

    def converse():
        replies.append(EmbeddedModel(engine).complete(tiny.module.QUESTION, Sampling(temperature=0.0)))

    thread = threading.Thread(target=converse)
    with PROCESSOR:
        thread.start()
        thread.join(1.0)
        assert not replies
    thread.join()
    assert replies[0].content == tiny.module.ANSWER
