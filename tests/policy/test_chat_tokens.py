"""TokenClient: the tokens that it sends and receives, with a server on this machine; tests/serving has the real one."""

from __future__ import annotations

import pytest

from kernel_assistant.config import resolve
from kernel_assistant.policy.chat import ChatClient, ChatSettings
from kernel_assistant.policy.chat_tokens import TokenClient, takes_tokens
from kernel_assistant.policy.client import PolicyError, Request
from kernel_assistant.policy.connect import connect
from kernel_assistant.records.transcript import Message
from tests.policy.endpoint import chunk, completion, fails, samples, streams

START, END = [1001], [1002]
ASK = (Message(role="system", content="s"), Message(role="user", content="t"))


def letters(text: str) -> list[int]:
    return list(map(ord, text))


@pytest.fixture
def client(endpoint):
    endpoint.takes_tokens = True
    made = TokenClient(ChatSettings(url=endpoint.url, model="m", seed=0, first_pause=0.01))
    yield made
    made.close()


def complete(client: TokenClient, *messages: Message) -> Message:
    return client.complete(Request(messages or ASK, max_tokens=9), lambda: False)


def test_the_next_turn_appends_what_was_sampled_as_it_came(client, endpoint):
    # "ab" is one token of the reply, which nothing that tokenises its text would find again.
    endpoint.answers += [samples([900, *END]), samples([65])]
    reply = complete(client)
    assert (reply.token_ids, reply.logprobs, reply.content) == ((900, 1002), (0.0, -0.25), chr(900))
    observed = Message(role="tool", content="ok .2<|im_end|>", tool_call_id="evaluate")
    assert complete(client, *ASK, reply, observed).token_ids == (65,)
    first, second = endpoint.bodies
    begun = [*START, *letters("system\ns"), *END, 10, *START, *letters("user\nt"), *END, 10]
    asked = [*START, *letters("assistant\n")]
    assert first["prompt"] == [*begun, *asked]
    told = [10, *START, *letters("tool\nok .2<|im_end|>"), *END, 10, *asked]
    assert second["prompt"] == [*first["prompt"], 900, *END, *told]
    # The likeliest answer first; then others.
    assert [(body["temperature"], body["top_p"], body["top_k"]) for body in endpoint.bodies] == [(0, 1, 0), (0.8, 1, 0)]


def test_a_reply_that_was_cut_gets_its_end(client, endpoint):
    endpoint.answers += [samples([65], "length"), samples([66])]
    reply = complete(client)
    complete(client, *ASK, reply)
    asked = [10, *START, *letters("assistant\n")]
    assert endpoint.bodies[1]["prompt"] == [*endpoint.bodies[0]["prompt"], 65, *END, *asked]


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        (fails(500), "server"),
        (streams(completion("a"), {"error": {"message": "EngineCore died"}}), "server"),
        (samples([65], None), "truncated"),
        (samples([65, 66], logprobs=1), "nonsense"),
        (streams(chunk({"content": "a"}, "stop")), "nonsense"),
    ],
)
def test_every_failure_has_its_name(client, endpoint, bad, kind):
    endpoint.answers += [bad] * 4
    with pytest.raises(PolicyError, match="4 attempts") as caught:
        complete(client)
    assert caught.value.kind == kind
    endpoint.answers.append(samples([65]))
    assert complete(client).content == "A"


def test_a_tokenizer_that_goes_is_a_failure_of_the_endpoint(client, endpoint):
    endpoint.takes_tokens = False
    with pytest.raises(PolicyError) as caught:
        complete(client)
    assert (caught.value.kind, endpoint.bodies) == ("refused", [])


def test_compact_models_are_asked_by_tokens_where_the_server_takes_them(tmp_path, registered, endpoint):
    registered(f'[box]\nkind = "endpoint"\nwhere = "{endpoint.url}"\ncompact = true\n')
    kinds = {}
    for endpoint.takes_tokens in (True, False):
        assert takes_tokens(endpoint.url, "", "small") is endpoint.takes_tokens
        made = connect(resolve(tmp_path)[0], "", "box").client(0)
        kinds[endpoint.takes_tokens] = type(made)
        made.close()
    assert kinds == {True: TokenClient, False: ChatClient}
