"""A conversation with the embedded model, and its failures."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from kernel_assistant.config import resolve
from kernel_assistant.errors import Cancelled
from kernel_assistant.records.transcript import Message
from kernel_assistant.serving.convert_run import convert
from kernel_assistant.serving.llama.embedded import EmbeddedModel, Sampling
from kernel_assistant.serving.llama.llama import SLOTS
from kernel_assistant.serving.local import LocalEngine
from kernel_assistant.serving.plan import plan
from kernel_assistant.serving.request import ServeRequest
from tests.serving.servers import below, eventually

GREEDY = Sampling(temperature=0.0)


def said(engine, path):
    connection = http.client.HTTPConnection(engine.spec.host, engine.spec.port)
    connection.request("GET", path, headers={"Authorization": f"Bearer {engine.spec.key}"})
    return connection.getresponse().read().decode()


def slots(engine):
    return json.loads(said(engine, "/slots"))


def count(engine, name):
    return int(re.search(rf"^llamacpp:{name} (\d+)", said(engine, "/metrics"), re.MULTILINE)[1])


@pytest.fixture(scope="module")
def slow(tiny, tmp_path_factory):
    """Ten million random weights, which need some seconds to fill the context."""
    folder = tmp_path_factory.mktemp("slow")
    tiny.module.make(folder / "model", tiny.module.TEN_MILLION, steps=0)
    convert("to-gguf", folder / "model", folder / "slow.gguf")
    engine = LocalEngine(plan(ServeRequest(model=str(folder / "slow.gguf"), engine="llama.cpp"), resolve()[0]))
    yield engine
    engine.stop()


def test_a_reply_has_a_probability_for_each_token(tiny, engine):
    reply = EmbeddedModel(engine).complete(tiny.module.QUESTION, GREEDY)
    assert reply.content == tiny.module.ANSWER and reply.finish_reason == "stop"
    assert len(reply.token_ids) == len(reply.logprobs) == reply.usage.completion_tokens
    assert all(-0.5 < value <= 0.0 for value in reply.logprobs)
    assert tiny.module.tokenizer().decode(reply.token_ids) == tiny.module.ANSWER + "<|im_end|>"


def test_the_next_turn_appends_to_a_reply_that_was_cut(tiny, engine):
    model = EmbeddedModel(engine)
    reply = model.complete(tiny.module.QUESTION, Sampling(temperature=0.0, max_tokens=5))
    assert reply.finish_reason == "length" and len(reply.token_ids) == 5
    begun = [*model.prompt(tiny.module.QUESTION), *reply.token_ids]
    prompt = model.prompt((*tiny.module.QUESTION, reply))
    assert prompt[: len(begun)] == begun
    assert tiny.module.tokenizer().decode(prompt[len(begun) :]) == "<|im_end|>\n<|im_start|>assistant\n"


def test_the_seed_decides(tiny, engine):
    model, hot = EmbeddedModel(engine), Sampling(temperature=3.0, max_tokens=20, seed=1)
    first = model.complete(tiny.module.QUESTION, hot)
    again = model.complete(tiny.module.QUESTION, hot)
    other = model.complete(tiny.module.QUESTION, Sampling(temperature=3.0, max_tokens=20, seed=2))
    assert first.token_ids == again.token_ids != other.token_ids


def test_cancel_ends_the_request_and_the_generation(tiny, slow):
    """Checks the server's own count: without the cancel it would have generated thousands of tokens."""
    looks, long = itertools.count(), Sampling(max_tokens=4000, seed=0)
    with pytest.raises(Cancelled):
        EmbeddedModel(slow).complete(tiny.module.QUESTION, long, cancelled=lambda: next(looks) > 8)
    assert eventually(lambda: not any(slot["is_processing"] for slot in slots(slow)))
    assert 0 < count(slow, "tokens_predicted_total") < 1000


def test_no_more_conversations_write_than_there_are_slots(slow):
    """Checks the server's own count of requests that wait for a slot. One may, since the server frees a slot a moment
    after its last token was read.
    """
    slow.running()
    begun = [(Message(role="user", content=f"{number} rows and columns"),) for number in range(2 * SLOTS)]

    def say(number):
        return EmbeddedModel(slow).complete(begun[number], Sampling(temperature=3.0, max_tokens=300, seed=number))

    with ThreadPoolExecutor(len(begun)) as pool:
        coming = [pool.submit(say, number) for number in range(len(begun))]
        seen = []
        while not all(reply.done() for reply in coming):
            seen.append((count(slow, "requests_processing"), count(slow, "requests_deferred")))
    assert all(reply.result().token_ids for reply in coming)
    assert max(seen)[0] > 1 and max(deferred for _, deferred in seen) <= 1


def test_a_reply_that_waits_for_a_slot_can_be_cancelled(engine):
    with ExitStack() as taken:
        for _ in range(SLOTS):
            taken.enter_context(engine.reply(lambda: False))
        with pytest.raises(Cancelled, match="other conversations"):
            EmbeddedModel(engine).complete((Message(role="user", content="?"),), GREEDY, cancelled=lambda: True)


def test_a_crash_has_a_name_and_the_next_call_works(tiny, engine):
    model = EmbeddedModel(engine)
    model.complete(tiny.module.QUESTION, GREEDY)
    os.kill(below(engine._process.pid)[0], signal.SIGSEGV)
    assert eventually(lambda: engine._process.exit_code() is not None)
    assert "killed by signal 11" in str(engine.why())
    assert model.complete(tiny.module.QUESTION, GREEDY).content == tiny.module.ANSWER


def test_several_threads_share_an_engine(tiny, engine):
    with ThreadPoolExecutor(6) as pool:
        coming = [pool.submit(EmbeddedModel(engine).complete, tiny.module.QUESTION, GREEDY) for _ in range(6)]
    assert [reply.result().content for reply in coming] == [tiny.module.ANSWER] * 6
