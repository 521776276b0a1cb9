"""On the CPU a model generates nothing while a kernel is timed, because each would slow the other down."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from kernel_assistant.environment.device_locks import lock_folder
from kernel_assistant.errors import Cancelled
from kernel_assistant.serving.llama.embedded import EmbeddedModel, Sampling
from kernel_assistant.worker.device_lock import DeviceLock

GREEDY = Sampling(temperature=0.0)


def test_the_embedded_model_writes_nothing_while_something_is_timed(tiny, engine):
    with ThreadPoolExecutor(1) as pool:
        with DeviceLock(lock_folder("cpu")).exclusive():
            reply = pool.submit(EmbeddedModel(engine).complete, tiny.module.QUESTION, GREEDY)
            assert not wait([reply], 1.0).done
        assert reply.result().content == tiny.module.ANSWER


def test_a_conversation_that_waits_can_be_cancelled(tiny, engine):
    cancelled = threading.Event()
    with ThreadPoolExecutor(1) as pool, DeviceLock(lock_folder("cpu")).exclusive():
        reply = pool.submit(EmbeddedModel(engine).complete, tiny.module.QUESTION, GREEDY, cancelled=cancelled.is_set)
        assert not wait([reply], 0.5).done
        cancelled.set()
        with pytest.raises(Cancelled, match="while a kernel was timed"):
            reply.result()
