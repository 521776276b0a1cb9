"""The embedded model in the way in which the loop uses it."""

from __future__ import annotations

import os
import signal

import pytest

from kernel_assistant.errors import Cancelled
from kernel_assistant.policy.client import PolicyError, Request
from kernel_assistant.policy.embedded import EmbeddedClient
from kernel_assistant.records.transcript import Message
from tests.serving.servers import below, eventually


@pytest.fixture
def client(engine):
    return EmbeddedClient(engine, "tiny", seed=0)


def test_messages_in_a_message_out(client, tiny):
    reply = client.complete(Request(messages=tiny.module.QUESTION, max_tokens=200), lambda: False)
    assert reply.content.startswith("plan:") and len(reply.token_ids) == len(reply.logprobs)
    request = Request(messages=tiny.module.QUESTION, tools=tuple(tiny.module.TOOLS), max_tokens=200)
    shown = client.complete(request, lambda: False)
    assert shown.usage.prompt_tokens > reply.usage.prompt_tokens + 20


def test_each_failure_has_its_kind(client, tiny, engine):
    with pytest.raises(Cancelled):
        client.complete(Request(messages=tiny.module.QUESTION), lambda: True)
    long = Message(role="user", content="rows and columns " * 400)
    with pytest.raises(PolicyError, match="512 fit") as caught:
        client.complete(Request(messages=(long,)), lambda: False)
    assert caught.value.kind == "context"


def test_a_dead_engine_ends_a_turn_and_not_the_next(client, tiny, engine):
    engine.running()
    process = below(engine._process.pid)[0]
    os.kill(process, signal.SIGSTOP)
    looks = iter(range(1000))

    def kill():
        if next(looks) == 2:
            os.kill(process, signal.SIGKILL)
        return False

    with pytest.raises(PolicyError) as caught:
        client.complete(Request(messages=tiny.module.QUESTION), kill)
    assert caught.value.kind == "engine" and "killed by signal 9" in caught.value.cause
    assert eventually(lambda: engine._process.exit_code() is not None)
    assert client.complete(Request(messages=tiny.module.QUESTION, max_tokens=200), lambda: False).content
