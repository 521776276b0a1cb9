"""A conversation as tokens: no text is tokenised twice, and no token of an observation counts as the model's."""

from __future__ import annotations

from itertools import chain

import msgspec
import pytest

from kernel_assistant.errors import UsageError
from kernel_assistant.records.transcript import Message
from kernel_assistant_training.conversation import Encoder
from kernel_assistant_training.ppo.chat.chat_format import BuiltInChatFormat, TokenizedConversation
from kernel_assistant_training.ppo.trajectory import Trajectory
from kernel_assistant_training.tokenizer import load
from tests.ppo.trajectories import earned, trajectory

CODE = "```cpp\n// set: BLOCK=256\nx0 + p0;\n```\n"


@pytest.fixture(scope="module")
def tokenizer():
    return load()


def reply(tokenizer, text, ended=True, odd=False):
    """A reply in the form of the decoder: with its end token, unless it was cut off. `odd` gives one token for each
    character.
    """
    tokenizer.encode_special_tokens = True
    parts = [tokenizer.encode(part, add_special_tokens=False).ids for part in (text if odd else [text])]
    ids = (*chain(*parts), *([tokenizer.token_to_id("<|im_end|>")] if ended else []))
    logprobs = tuple(-0.01 * number for number in range(len(ids)))
    return Message(role="assistant", content=text, token_ids=ids, logprobs=logprobs)


def conversation(tokenizer):
    return (
        Message(role="system", content="Write C++ for the graph."),
        Message(role="user", content="x0 f32[B,D0]\nn0 = relu(x0)\nreturn n0\nB=4096 D0=768"),
        reply(tokenizer, CODE, odd=True),
        Message(role="tool", content="wrong out0[3,17] got 1.2 want .8 <|im_end|>", tool_call_id="evaluate"),
        reply(tokenizer, "plan: BLOCK", ended=False),
        Message(role="tool", content="ok .214 floor .12", tool_call_id="evaluate", candidate="abc"),
        reply(tokenizer, "done"),
        Message(role="tool", content="never read", tool_call_id="evaluate"),
    )


def spoken(tokenizer, messages, prompts=None):
    """A client that answers with the replies among the messages."""
    found = TokenizedConversation(BuiltInChatFormat(tokenizer))
    for place, message in enumerate(messages):
        if message.role == "assistant":
            prompt = found.prompt(messages[:place], ())
            found.add(message.token_ids, message.logprobs)
            if prompts is not None:
                prompts.append(prompt)
    return found.said()


def test_each_reply_stands_behind_what_the_engine_read(tokenizer):
    messages, prompts = conversation(tokenizer), []
    said = spoken(tokenizer, messages, prompts)
    encoder, replies = Encoder(load()), iter(zip(said.spans, prompts, strict=True))
    for place, message in enumerate(messages):
        if message.role == "assistant":
            (begin, count), prompt = next(replies)
            assert list(said.ids[:begin]) == prompt == encoder.prompt(messages[:place])
            assert said.ids[begin : begin + count] == message.token_ids
    assert next(replies, None) is None
    assert said.logprobs == tuple(one for message in messages for one in message.logprobs or ())
    assert len(said.ids) == sum(said.spans[-1])


def test_the_end_of_a_turn_that_was_cut_off_is_not_the_models(tokenizer):
    said = spoken(tokenizer, conversation(tokenizer))
    end = tokenizer.token_to_id("<|im_end|>")
    first, cut, last = ((begin, begin + count) for begin, count in said.spans)
    assert said.ids[first[1] - 1] == said.ids[last[1] - 1] == end
    assert said.ids[cut[1] - 1] != end and said.ids[cut[1]] == end


def test_a_shortened_conversation_is_refused(tokenizer):
    system, task, said, heard, *_ = conversation(tokenizer)
    found = TokenizedConversation(BuiltInChatFormat(tokenizer))
    found.prompt([system, task], ())
    found.add(said.token_ids, said.logprobs)
    shortened = msgspec.structs.replace(task, content="x0 f32")
    for messages in ([system, shortened, said, heard], [system, task, said]):
        with pytest.raises(UsageError, match="changed on the way"):
            found.prompt(messages, ())


def test_a_conversation_without_a_reply_has_no_actions(tokenizer):
    found = TokenizedConversation(BuiltInChatFormat(tokenizer))
    found.prompt(conversation(tokenizer)[:2], ())
    assert found.said().ids and not found.said().spans


def test_it_comes_back_from_json_as_it_was(tokenizer):
    said = spoken(tokenizer, conversation(tokenizer))
    made = Trajectory.of(said, key="k", seed=3, target="cpu", iteration=1, reward=earned(1.0), stop="finished")
    back = msgspec.json.decode(msgspec.json.encode(made), type=Trajectory)
    assert back == made
    assert back.said().ids == said.ids and back.said().logprobs == pytest.approx(said.logprobs)
    assert (back.turns, back.length, back.actions) == (3, len(said.ids), len(said.logprobs))


@pytest.mark.parametrize("spans", [[(0, 2)], [(1, 9)], [(1, 3), (3, 2)], [(1, 0)]])
def test_spans_that_cannot_be_are_refused(spans):
    with pytest.raises(ValueError, match="span"):
        trajectory(range(8), spans, 1.0)


def test_log_probabilities_are_those_of_the_actions():
    with pytest.raises(ValueError, match="one log-probability"):
        trajectory(range(8), [(1, 3)], 1.0, logprobs=[0.0] * 4)
