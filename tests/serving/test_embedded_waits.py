"""On the CPU a model generates nothing while a kernel is timed, because each would slow the other down."""

from __future__ import annotations

import threading

import pytest

from kernel_assistant.environment.device_locks import lock_folder
from kernel_assistant.errors import Cancelled
from kernel_assistant.serving.llama.embedded import EmbeddedModel, Sampling
from kernel_assistant.worker.device_lock import DeviceLock


def test_the_embedded_model_writes_nothing_while_something_is_timed(tiny, engine):
    replies = []

    def converse():
        replies.append(EmbeddedModel(engine).complete(tiny.module.QUESTION, Sampling(temperature=0.0)))

    thread = threading.Thread(target=converse)
    with DeviceLock(lock_folder("cpu")).exclusive():
        thread.start()
        thread.join(1.0)
        assert not replies
    thread.join()
    assert replies[0].content == tiny.module.ANSWER


def test_a_conversation_that_waits_can_be_cancelled(tiny, engine):
    ended, timed = [], threading.Event()

    def converse():
        with pytest.raises(Cancelled, match="while a kernel was timed"):
            EmbeddedModel(engine).complete(tiny.module.QUESTION, Sampling(temperature=0.0), cancelled=timed.is_set)
        ended.append(True)

    thread = threading.Thread(target=converse)
    with DeviceLock(lock_folder("cpu")).exclusive():
        thread.start()
        thread.join(0.5)
        timed.set()
        thread.join()
    assert ended
