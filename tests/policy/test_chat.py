"""ChatClient with a real server on this machine, in all cases of failure."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import pytest

from kernel_assistant.errors import Cancelled
from kernel_assistant.policy.chat import ChatClient, ChatSettings
from kernel_assistant.policy.client import STOPPED, PolicyError, ReplySoFar, Request
from kernel_assistant.records.transcript import Message, ToolCall
from tests.policy.endpoint import Handler, chunk, fails, held, says, streams, text, usage, whole

ASK = Request((Message(role="user", content="hello"),), ({"type": "function", "function": {"name": "list"}},), 100)


@pytest.fixture
def client_with(endpoint):
    """A function: settings → a client of the endpoint."""
    with ExitStack() as clients:

        def make(**settings: Any) -> ChatClient:
            known = {"url": endpoint.url, "model": "m", "first_pause": 0.01}
            return clients.enter_context(closing(ChatClient(ChatSettings(**known | settings))))

        yield make


@pytest.fixture
def client(client_with):
    return client_with(key="k", silence=2.0)


def complete(client: ChatClient, request: Request = ASK) -> Message:
    return client.complete(request, lambda: False)


def test_text_usage_and_what_was_asked(client, endpoint):
    endpoint.answers.append(text("hello you there"))
    reply = complete(client)
    assert (reply.content, reply.finish_reason) == ("helloyouthere", "stop")
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (120, 3)
    (body,) = endpoint.bodies
    assert (body["model"], body["max_tokens"], body["stream"]) == ("m", 100, True)
    assert body["messages"] == [{"role": "user", "content": "hello"}] and body["tools"] == list(ASK.tools)
    assert endpoint.keys == ["Bearer k"]


def test_tool_calls_come_in_pieces(client, endpoint):
    def call(index: int, **function: str) -> dict[str, Any]:
        part: dict[str, Any] = {"index": index, "function": function}
        return {"tool_calls": [part | ({"id": f"id{index}", "type": "function"} if "name" in function else {})]}

    pieces = [call(0, name="read", arguments=""), call(0, arguments='{"pa'), call(0, arguments='th": "x"}')]
    endpoint.answers.append(says({"reasoning_content": "hm"}, *pieces, call(1, name="list"), finish="tool_calls"))
    reply = complete(client)
    assert reply.tool_calls == (
        ToolCall(id="id0", name="read", arguments='{"path": "x"}'),
        ToolCall(id="id1", name="list", arguments="{}"),
    )
    assert (reply.reasoning, reply.finish_reason) == ("hm", "tool_calls")
    endpoint.answers.append(text("next"))
    answered = Message(role="tool", content="file", tool_call_id="id0")
    complete(client, Request((reply, answered)))
    sent = endpoint.bodies[-1]["messages"]
    assert sent[0]["tool_calls"][0]["function"] == {"name": "read", "arguments": '{"path": "x"}'}
    assert sent[1] == {"role": "tool", "content": "file", "tool_call_id": "id0"}


def test_what_utf8_cannot_say_is_replaced(client, endpoint):
    nameless = {"tool_calls": [{"index": 0, "function": {"arguments": ""}}]}
    endpoint.answers.append(says({"content": "a\ud800b"}, nameless))
    reply = complete(client)
    assert (reply.content, reply.tool_calls) == ("a?b", (ToolCall(id="call_0", name="unnamed", arguments="{}"),))


def test_token_ids_and_log_probabilities_where_there_are_any(client, endpoint):
    known = {"token": "a", "bytes": None, "top_logprobs": []}
    said = [
        chunk({"content": "a"}, token_ids=[number], logprobs={"content": [{**known, "logprob": -0.5 * number}]})
        for number in (7, 8)
    ]
    endpoint.answers.append(streams(*said, chunk({}, "stop"), "[DONE]"))
    reply = complete(client)
    assert (reply.token_ids, reply.logprobs) == ((7, 8), (-3.5, -4.0))


def test_a_server_that_refuses_the_extras_is_asked_without(client, endpoint):
    endpoint.answers += [fails(400, "unknown field return_token_ids"), text("fine"), text("again")]
    assert complete(client).content == "fine"
    assert complete(client).content == "again"
    assert ["return_token_ids" in body for body in endpoint.bodies] == [True, False, False]


def test_a_server_with_another_word_for_the_bound(client, endpoint):
    refused = fails(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
    endpoint.answers += [refused, text("fine")]
    assert complete(client).content == "fine"
    assert [body.get("max_completion_tokens") for body in endpoint.bodies] == [None, 100]
    assert endpoint.bodies[1]["logprobs"] is True


def _killed(request: Handler) -> None:
    """The connection breaks after the reply has begun in HTTP's chunks, as when a server dies."""
    request.protocol_version = "HTTP/1.1"
    request.begin(transfer_encoding="chunked")
    event = f"data: {json.dumps(chunk({'content': 'half a sen'}))}\n\n".encode()
    request.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
    request.close_connection = True


def _silent(request: Handler) -> None:
    time.sleep(4)


def _not_a_stream(request: Handler) -> None:
    request.begin(kind="text/html")
    request.wfile.write(b"<html>welcome</html>")


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        (fails(500), "server"),
        (streams(chunk({"content": "half a sen"})), "truncated"),
        (_killed, "truncated"),
        (_not_a_stream, "nonsense"),
        (streams("{this is not json"), "nonsense"),
        (streams({"choices": [{"finish_reason": "stop"}], "usage": 3}), "nonsense"),
        (streams(chunk({"content": "half"}), {"error": {"message": "out of memory"}}), "server"),
    ],
)
def test_what_may_pass_is_tried_again_and_has_a_name(client, endpoint, bad, kind):
    endpoint.answers += [bad, text("fine")]
    assert complete(client).content == "fine"
    endpoint.answers += [bad] * 4
    with pytest.raises(PolicyError) as caught:
        complete(client)
    assert caught.value.kind == kind
    assert "4 attempts" in caught.value.cause


@pytest.mark.parametrize(
    ("status", "message", "kind", "step"),
    [
        (401, "bad key", "refused", "the key is wrong"),
        (402, "pay first", "refused", "credit"),
        (403, "not for you", "refused", "another key"),
        (404, "no model m", "refused", "--model"),
        (429, "insufficient_quota: check your plan", "refused", "credit"),
        (400, "maximum context length is 4096 tokens", "context", "smaller context"),
    ],
)
def test_what_will_not_pass_is_not_tried_again(client, endpoint, status, message, kind, step):
    endpoint.answers.append(fails(status, message))
    with pytest.raises(PolicyError, match=message) as caught:
        complete(client)
    assert (caught.value.kind, len(endpoint.bodies)) == (kind, 1)
    assert step in caught.value.next_step


@pytest.mark.parametrize("status", [429, 529])
def test_a_busy_server_is_asked_again_when_it_says_to(client_with, endpoint, status):
    endpoint.answers += [fails(status, "slow down", retry_after="0.01")] * 6 + [text("fine")]
    assert complete(client_with(first_pause=3600, longest_pause=3600)).content == "fine"


@pytest.mark.parametrize("key", ["sk-proj-abcdef1234567890", "sk-ab***************xyz"])
def test_a_key_that_a_server_repeats_is_masked(client, endpoint, key):
    endpoint.answers.append(fails(401, f"Incorrect API key provided: {key}. Bearer {key}"))
    with pytest.raises(PolicyError) as caught:
        complete(client)
    assert "…" in caught.value.cause and key not in caught.value.cause and key[:8] not in caught.value.cause


def test_an_answer_that_is_not_streamed_is_an_answer(client, endpoint):
    called = {"id": "id7", "type": "function", "function": {"name": "list", "arguments": "{}"}}
    endpoint.answers += [
        whole({"content": "hello", "reasoning_content": "hm"}),
        whole({"content": None, "tool_calls": [called]}, "tool_calls"),
    ]
    reply = complete(client)
    assert (reply.content, reply.reasoning, reply.finish_reason) == ("hello", "hm", "stop")
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (120, 7)
    assert complete(client).tool_calls == (ToolCall(id="id7", name="list", arguments="{}"),)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        (400, "registry/library/gemma does not support tools"),
        (404, "No endpoints found that support tool use"),
        (500, "tools param requires --jinja flag"),
    ],
)
def test_a_server_that_takes_no_tools_gets_them_as_text(client, endpoint, status, message):
    schema = {"type": "function", "function": {"name": "list"}}
    asked = Message(role="assistant", content="I look.", tool_calls=(ToolCall(id="a", name="list", arguments="{}"),))
    messages = (
        Message(role="system", content="Be good."),
        Message(role="user", content="hello"),
        asked,
        Message(role="tool", content="two files", tool_call_id="a"),
        Message(role="user", content="hurry"),
    )
    endpoint.answers += [fails(status, message), text("fine"), text("again")]
    assert complete(client, Request(messages, (schema,), 100)).content == "fine"
    complete(client)
    refused, plain, later = endpoint.bodies
    assert "tools" in refused and "tools" not in plain and "tools" not in later
    system, user, reply, result = plain["messages"]
    assert system["content"].startswith("Be good.") and json.dumps(schema) in system["content"]
    assert user["content"] == "hello"
    called = '<tool_call>\n{"name": "list", "arguments": {}}\n</tool_call>'
    assert reply == {"role": "assistant", "content": f"I look.\n{called}"}
    assert result == {"role": "user", "content": "Result of list:\ntwo files\n\nhurry"}


def test_a_dead_endpoint_is_unreachable(client_with):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(PolicyError, match="cannot be reached") as caught:
        complete(client_with(url=f"http://127.0.0.1:{port}/v1"))
    assert caught.value.kind == "unreachable"


def test_a_server_that_is_started_again_is_waited_for(client_with, endpoint):
    looks = iter([True, True, False])
    client = client_with(attempts=2, longest_pause=0.01, comes_back=lambda: next(looks))
    endpoint.answers += [_killed, fails(503), fails(503), text("fine")]
    assert complete(client).content == "fine"
    endpoint.answers += [fails(503)] * 2
    with pytest.raises(PolicyError, match="2 attempts"):
        complete(client)


def test_silence_is_a_timeout(client_with, endpoint):
    endpoint.answers += [_silent, _silent]
    with pytest.raises(PolicyError) as caught:
        complete(client_with(silence=0.2, attempts=2))
    assert caught.value.kind == "timeout"


@pytest.mark.parametrize("begins", [True, False])
def test_cancelling_closes_the_connection(client, endpoint, begins):
    """Cancels during the stream, and before the first byte. The server notices that the connection is closed."""
    stop, gone = threading.Event(), threading.Event()
    endpoint.answers.append(held(stop, gone, writes=begins))
    with pytest.raises(Cancelled):
        client.complete(ASK, stop.is_set)
    assert gone.wait(60)
    endpoint.answers.append(text("fine"))
    assert complete(client).content == "fine"


def test_cancelling_ends_a_pause_between_attempts(client_with, endpoint):
    endpoint.answers.append(fails(500))
    with pytest.raises(Cancelled):
        client_with(first_pause=3600, longest_pause=3600).complete(ASK, lambda: bool(endpoint.bodies))


def test_a_reply_is_watched_while_it_is_written_and_may_be_ended(client, endpoint):
    """The server goes on until its connection is closed. The call that was being written is left out."""
    seen, gone = list[ReplySoFar](), threading.Event()

    def endless(request: Handler) -> None:
        request.begin()
        request.event(chunk({"reasoning_content": "hm ", "content": "I write. "}))
        for index, arguments in ((0, "{}"), (1, '{"text": "')):
            function = {"name": "write", "arguments": arguments}
            request.event(chunk({"tool_calls": [{"index": index, "id": f"id{index}", "function": function}]}))
        while True:
            try:
                request.event(chunk({"tool_calls": [{"index": 1, "function": {"arguments": "again "}}]}))
            except OSError:
                gone.set()
                return
            time.sleep(0.01)

    def watch(partial: ReplySoFar) -> bool:
        seen.append(partial)
        return "again again" in partial.text

    endpoint.answers.append(endless)
    reply = client.complete(replace(ASK, watch=watch), lambda: False)
    assert (reply.content, reply.reasoning, reply.finish_reason) == ("I write. ", "hm ", STOPPED)
    assert reply.tool_calls == (ToolCall(id="id0", name="write", arguments="{}"),)
    assert seen[-1].text.startswith("hm I write. write{}write") and seen[-1].tokens > 3 and seen[-1].rate > 0
    assert gone.wait(60)


def test_usage_may_come_without_choices(client, endpoint):
    endpoint.answers.append(streams(chunk({"content": "a"}, "length"), usage(5, 1)))
    reply = complete(client)
    assert (reply.finish_reason, reply.usage.prompt_tokens) == ("length", 5)
