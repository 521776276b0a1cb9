"""Tests the messages that are sent and kept, and those that the store returns."""

from __future__ import annotations

import pytest

from kernel_assistant.agent.conversation import CHARACTERS_PER_TOKEN, ContextWindow, Conversation
from kernel_assistant.records.transcript import Message, ToolCall, Transcript, Usage
from kernel_assistant.store import Store

LONG = "first line\n" + "x" * 4000


def conversation(compacts: bool = True) -> Conversation:
    talk = Conversation(ContextWindow(context=13_000, reply=500), compacts=compacts)
    talk.add(Message(role="system", content="rules"))
    talk.add(Message(role="user", content=LONG))
    return talk


def turn(talk: Conversation, number: int) -> None:
    call = ToolCall(id=f"c{number}", name="write", arguments=f'{{"text": "{"y" * 2000}"}}')
    talk.add_reply(Message(role="assistant", content=f"turn {number}", tool_calls=(call,)))
    talk.add(Message(role="tool", content=LONG, tool_call_id=call.id))


def replied(talk: Conversation, content: str, **counted: int) -> None:
    talk.add_reply(Message(role="assistant", content=content, usage=Usage(**counted)))


def test_old_observations_go_first_then_what_was_written():
    talk = conversation()
    for number in range(12):
        assert talk.fits()
        turn(talk, number)
    assert talk.fits()
    sent = talk.prompt()
    assert sent[0].content == "rules" and sent[1].content == LONG
    assert [message.content for message in sent[-6:]] == [message.content for message in talk.messages[-6:]]
    assert sent[3].content == f"first line [… {len(LONG)} characters]"
    assert "left_out" in sent[2].tool_calls[0].arguments
    assert talk.messages[3].content == LONG


def test_append_only_ends_where_the_room_does():
    talk = conversation(compacts=False)
    turns = 0
    while talk.fits():
        turn(talk, turns)
        turns += 1
    assert turns > 1
    assert talk.prompt() == tuple(talk.messages)


def test_the_server_counts_better():
    talk = conversation()
    estimated = talk.tokens()
    replied(talk, "", prompt_tokens=2 * estimated)
    assert 1.9 * estimated < talk.tokens() < 2.1 * estimated


def test_replies_of_few_tokens_are_counted_as_the_server_did():
    talk = conversation()
    prompt = talk.tokens()
    replied(talk, "x" * 3000, prompt_tokens=prompt, completion_tokens=60)
    assert talk.tokens() == pytest.approx(prompt + 60, rel=0.05)


def test_schemas_of_tools_are_counted_once():
    talk = Conversation(ContextWindow(context=13_000, reply=500), ({"name": "x" * 20_000},), compacts=False)
    talk.add(Message(role="user", content="x" * 8000))
    characters = talk.tokens() * CHARACTERS_PER_TOKEN
    replied(talk, "x" * 400, prompt_tokens=int(characters / 4), completion_tokens=100)
    assert talk.tokens() == pytest.approx(characters / 4 + 100, rel=0.02)


def test_what_a_model_wrote_beside_its_reply_does_not_make_the_reply_longer():
    talk, other = conversation(), conversation()
    prompt = talk.tokens()
    replied(talk, "x" * 30, prompt_tokens=prompt, completion_tokens=3000)
    replied(other, "x" * 30, prompt_tokens=prompt)
    assert talk.tokens() == other.tokens()


def test_the_store_keeps_messages_as_they_come_and_change(tmp_path):
    store = Store(tmp_path)
    talk = conversation()

    def transcript() -> Transcript:
        return Transcript(model="m", profile="full", messages=tuple(talk.messages), ending="")

    kept: tuple[Message, ...] = ()
    for number in range(12):
        talk.fits()
        turn(talk, number)
        kept = store.transcripts.keep("7", 0, transcript(), kept)
    assert store.transcripts.of("7") == (transcript(),)
    assert any(message.short_from for message in transcript().messages)
    assert (store.transcripts.count("7"), store.transcripts.of("8")) == (1, ())
    store.close()
