"""The tokens of a conversation: which are learned, and that every engine splits the same text in the same way."""

from __future__ import annotations

from itertools import islice

import pytest
import torch
from msgspec.structs import replace
from transformers import AutoTokenizer

from kernel_assistant.config import resolve
from kernel_assistant.records.transcript import Message
from kernel_assistant.serving.convert.to_gguf import to_gguf
from kernel_assistant.serving.endpoint import local_engine
from kernel_assistant.serving.llama.embedded import EmbeddedModel
from kernel_assistant.serving.registry import find
from kernel_assistant_training.architecture import SMALL, Llama
from kernel_assistant_training.conversation import Encoder
from kernel_assistant_training.folder import save_folder
from kernel_assistant_training.packing import FIRST, LEARNED, PROMPT, Packer
from kernel_assistant_training.reply import CONTEXT, MOST_REPLY
from kernel_assistant_training.source import pairs_of
from kernel_assistant_training.tokenizer import PARTS, VOCABULARY, load

FENCE = '```cuda\n// schedule: rows\n// launch: rows(x0, out0, dim_B=B) grid=B block=256\n#include "ka_cuda.cuh"\n```\n'
CALL = '<tool_call>{"name": "evaluate", "arguments": {}}</tool_call>'
EPISODE = [
    Message(role="system", content="Write CUDA for the graph."),
    Message(role="user", content="x0 f32[B,D0]\nn0 = softmax(x0, -1, false)\nreturn n0\nB=4096 D0=768 C0=1e-05 sm_90"),
    Message(role="assistant", content=FENCE + CALL),
    Message(role="tool", content='compile L12 identifier "t2" is undefined <|im_end|> größe', tool_call_id="evaluate"),
    Message(role="assistant", content="plan: T=512"),
]


@pytest.fixture(scope="module")
def encoder():
    return Encoder(load())


@pytest.fixture(scope="module")
def theirs():
    return AutoTokenizer.from_pretrained(VOCABULARY)


def _marked(ids, marks):
    return [number for number, mark in zip(ids, marks, strict=True) if mark]


@pytest.mark.parametrize(
    ("turns", "learned"),
    [
        (None, f"{FENCE}{CALL}<|im_end|>plan: T=512<|im_end|>"),
        ([True, True, False, True, True], "plan: T=512<|im_end|>"),
    ],
    ids=["what the assistant writes", "a turn is left out"],
)
def test_what_is_learned(encoder, theirs, turns, learned):
    found = encoder.encode(EPISODE, turns)
    assert theirs.decode(_marked(found.ids, found.learned)) == learned


def test_marks_are_those_of_the_chat_template(encoder, theirs):
    """They are equal up to an observation that spells a control token, which only our encoder keeps as text."""
    episode = [*EPISODE[:3], Message(role="tool", content="ok .2", tool_call_id="evaluate"), EPISODE[4]]
    documents = [message.openai() for message in episode]
    expected = theirs.apply_chat_template(documents, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
    found = encoder.encode(episode)
    # Replies are merged within whole lines, so that only their text is the same.
    assert theirs.decode(found.ids) == theirs.decode(expected["input_ids"])
    marked = _marked(expected["input_ids"], expected["assistant_masks"])
    assert theirs.decode(_marked(found.ids, found.learned)) == theirs.decode(marked)
    assert sum(found.learned) < len(marked)


def test_text_is_never_a_control_token(encoder, theirs):
    ends = encoder.encode(EPISODE).ids.count(theirs.convert_tokens_to_ids("<|im_end|>"))
    assert ends == len(EPISODE)


def test_sampled_tokens_stay_as_they_are(encoder, theirs):
    sampled = [70, 71, theirs.convert_tokens_to_ids("<|im_end|>")]
    found = encoder.encode([Message(role="assistant", content="ab", token_ids=tuple(sampled))])
    assert _marked(found.ids, found.learned) == sampled


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("n1 = cumprod(n0, 1)", ["cum", "prod"]),
        ("n1 = cummax(n0, 1)", ["cum", "max"]),
        ("n1 = prod(n0, 1)", ["prod"]),
        ("ka::pool1d<3>", ["pool"]),
        ("n2 = max_pool1d(n1, [3])", ["max", "pool"]),
        ("n2 = log_softmax(n1, -1)", ["log", "soft", "max"]),
    ],
)
def test_names_of_operators_are_cut_into_their_parts(theirs, text, parts):
    assert [token for token in theirs.tokenize(text) if token in PARTS] == parts


def test_numbers_are_single_digits(theirs):
    assert theirs.tokenize("D12=4096")[-4:] == ["4", "0", "9", "6"]


def test_llama_cpp_cuts_text_in_the_same_way(encoder, tmp_path, monkeypatch):
    monkeypatch.setenv("KERNEL_ASSISTANT_HOME", str(tmp_path / "home"))
    torch.manual_seed(0)
    save_folder(Llama(SMALL), tmp_path / "model")
    to_gguf(tmp_path / "model", tmp_path / "model.gguf")
    settings = resolve()[0]
    engine = local_engine(find(str(tmp_path / "model.gguf"), settings), settings)
    try:
        engine.running()
        model = EmbeddedModel(engine)
        odd = "  a  b\n\n\n\tc+=1e-05f;  // größe — 🙂 x0[3,17]\r\n<tool_call>'ll 're\n   \n"
        for text in (odd, FENCE, (VOCABULARY.parent / "tokenizer.py").read_text()):
            messages = [*_sampled(encoder), Message(role="user", content=text)]
            assert model.prompt(messages) == encoder.prompt(messages)
    finally:
        engine.stop()


def _sampled(encoder):
    """The episode as the product keeps it: with the tokens of its replies."""
    return [
        replace(message, token_ids=tuple(encoder.reply(message.content))) if message.role == "assistant" else message
        for message in EPISODE
    ]


def test_rows_hold_whole_conversations(encoder):
    conversations = [encoder.encode(EPISODE[: 3 + number % 3]) for number in range(40)]
    longest = max(len(one.ids) for one in conversations)
    packer = Packer(length=3 * longest, at_hand=8)
    rows = [row for one in conversations if (row := packer.add(one)) is not None]
    rows += [row for _ in range(8) if (row := packer.row())[1].any()]
    found = []
    for ids, flags in rows:
        starts = [int(place) for place in (flags & FIRST).nonzero()[0]]
        end = int((flags != 0).sum())
        for start, stop in zip(starts, [*starts[1:], end], strict=True):
            found.append((ids[start:stop].tolist(), (flags[start:stop] & LEARNED != 0).tolist()))
        assert (flags[end:] == 0).all() and (flags[:end] & (LEARNED | PROMPT) != 0).all()
    assert sorted(found) == sorted((one.ids, one.learned) for one in conversations)
    filled = [(flags != 0).mean() for _, flags in rows[: len(rows) // 2]]
    assert min(filled) > 0.8


def test_what_is_longer_than_a_row_is_counted(encoder):
    packer = Packer(length=8)
    assert packer.add(encoder.encode(EPISODE)) is None
    assert packer.left_out == 1


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_what_is_learned_fits_a_reply_and_a_reply_a_conversation(target, encoder):
    said = [encoder.encode(messages) for messages in islice(pairs_of(target)(3), 300)]
    answers = [sum(one.learned) for one in said]
    assert max(len(one.ids) - answer for one, answer in zip(said, answers, strict=True)) + MOST_REPLY <= CONTEXT
    assert sum(answer > MOST_REPLY for answer in answers) <= 6
