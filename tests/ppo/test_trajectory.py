"""What was said, as tokens: nothing is cut twice, nothing of the judge's counts as the model's."""

from __future__ import annotations

import msgspec
import pytest

from kernel_assistant.errors import UsageError
from kernel_assistant.records.transcript import Message, Transcript
from kernel_assistant_training.conversation import Encoder
from kernel_assistant_training.ppo.trajectory import Trajectory, piece_tokens, said_in
from kernel_assistant_training.tokenizer import load
from tests.ppo.trajectories import earned, trajectory

CODE = "```cpp\n// set: BLOCK=256\nx0 + p0;\n```\n"


@pytest.fixture(scope="module")
def tokenizer():
    return load()


def reply(tokenizer, text, ended=True, odd=False):
    """As the decoder gives it: with its end token, unless it was cut off. `odd`: one token for each character."""
    tokenizer.encode_special_tokens = True
    ids = [
        token for part in (text if odd else [text]) for token in tokenizer.encode(part, add_special_tokens=False).ids
    ]
    ids += [tokenizer.token_to_id("<|im_end|>")] if ended else []
    return Message(
        role="assistant", content=text, token_ids=tuple(ids), logprobs=tuple(-0.01 * place for place in range(len(ids)))
    )


def conversation(tokenizer):
    return Transcript(
        model="m",
        profile="compact",
        messages=(
            Message(role="system", content="Write C++ for the graph."),
            Message(role="user", content="x0 f32[B,D0]\nn0 = relu(x0)\nreturn n0\nB=4096 D0=768"),
            reply(tokenizer, CODE, odd=True),
            Message(role="tool", content="wrong out0[3,17] got 1.2 want .8 <|im_end|>", tool_call_id="evaluate"),
            reply(tokenizer, "plan: BLOCK", ended=False),
            Message(role="tool", content="ok .214 floor .12", tool_call_id="evaluate", candidate="abc"),
            reply(tokenizer, "done"),
            Message(role="tool", content="never read", tool_call_id="evaluate"),
        ),
    )


def test_each_reply_stands_behind_what_the_engine_read(tokenizer):
    transcript = conversation(tokenizer)
    said = said_in(transcript, piece_tokens(tokenizer))
    encoder, replies = Encoder(load()), iter(said.spans)
    for place, message in enumerate(transcript.messages):
        if message.role == "assistant":
            begin, count = next(replies)
            assert list(said.ids[:begin]) == encoder.prompt(transcript.messages[:place])
            assert said.ids[begin : begin + count] == message.token_ids
    assert next(replies, None) is None
    assert said.logprobs == tuple(one for message in transcript.replies for one in message.logprobs)
    assert len(said.ids) == sum(said.spans[-1])


def test_the_end_of_a_turn_that_was_cut_off_is_not_the_models(tokenizer):
    said = said_in(conversation(tokenizer), piece_tokens(tokenizer))
    end = tokenizer.token_to_id("<|im_end|>")
    first, cut, last = ((begin, begin + count) for begin, count in said.spans)
    assert said.ids[first[1] - 1] == said.ids[last[1] - 1] == end
    assert said.ids[cut[1] - 1] != end and said.ids[cut[1]] == end


def test_a_shortened_conversation_and_a_reply_without_tokens_are_refused(tokenizer):
    transcript = conversation(tokenizer)
    first, *rest = transcript.messages
    shortened = msgspec.structs.replace(
        transcript, messages=(first, msgspec.structs.replace(rest[0], short_from=2), *rest[1:])
    )
    with pytest.raises(UsageError, match="shortened"):
        said_in(shortened, piece_tokens(tokenizer))
    bare = msgspec.structs.replace(transcript, messages=(first, Message(role="assistant", content="hm")))
    with pytest.raises(UsageError, match="no token ids"):
        said_in(bare, piece_tokens(tokenizer))


def test_a_conversation_without_a_reply_has_no_actions(tokenizer):
    messages = conversation(tokenizer).messages[:2]
    said = said_in(Transcript(model="m", profile="compact", messages=messages), piece_tokens(tokenizer))
    assert said.ids and not said.spans


def test_it_comes_back_from_json_as_it_was(tokenizer):
    said = said_in(conversation(tokenizer), piece_tokens(tokenizer))
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
