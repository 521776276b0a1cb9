"""Replies of models of any family: a batch gives the same as a single row, and the trainer gives the same
log-probabilities.
"""

from __future__ import annotations

import pytest
import torch

from kernel_assistant.errors import UsageError
from kernel_assistant_training.decode import GenerationRequest
from kernel_assistant_training.ppo.engines import engine_transformers as module
from kernel_assistant_training.ppo.engines.engine import engine
from kernel_assistant_training.ppo.engines.engine_options import EngineOptions
from kernel_assistant_training.ppo.engines.engine_transformers import TransformersEngine
from kernel_assistant_training.ppo.model.actor import Actor
from kernel_assistant_training.ppo.model.base import PolicyModelOptions
from kernel_assistant_training.ppo.trajectory import ReplySpans
from kernel_assistant_training.ppo.updates.batches import PaddedBatch
from tests.base.models import VOCABULARY, save

CPU = torch.device("cpu")


def asked(count, temperature=1.0, most=9):
    draw = torch.Generator().manual_seed(1)
    lengths = [3 + 5 * number % 17 for number in range(count)]
    return [
        GenerationRequest(torch.randint(8, 250, (length,), generator=draw).tolist(), temperature, number, most)
        for number, length in enumerate(lengths)
    ]


def difference(actor, wanted, replies):
    """The largest difference between the log-probabilities of sampler and trainer, in nats."""
    said = [
        ReplySpans((*one.prompt, *reply.ids), ((len(one.prompt), len(reply.ids)),), tuple(reply.logprobs))
        for one, reply in zip(wanted, replies, strict=True)
    ]
    rows = PaddedBatch.of(said, range(len(said)), actor.device)
    with torch.no_grad():
        mine = actor(rows.ids, rows.actions).logprobs
    return float((mine - rows.sampled)[rows.actions].abs().max())


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma2", "gpt2", "mixtral", "lfm2"])
def test_the_trainer_says_of_replies_what_the_engine_said(kind, tmp_path):
    actor = Actor.load(save(kind, tmp_path), CPU, PolicyModelOptions(lora=4, checkpointing=True))
    wanted = asked(6)
    replies = TransformersEngine(actor, [], rows=4).decode(wanted)
    assert [len(one.ids) for one in replies] == [9] * 6
    assert difference(actor, wanted, replies) < 1e-3
    assert actor.model.training, "checkpointing goes on"


def test_every_end_ends_a_reply(tmp_path):
    actor = Actor.load(save("llama", tmp_path), CPU)
    free = TransformersEngine(actor, [], rows=4).decode(asked(4))
    ends = {free[0].ids[2], free[1].ids[5]}
    replies = TransformersEngine(actor, ends, rows=4).decode(asked(4))
    for one, other in zip(replies, free, strict=True):
        stop = next((place for place, token in enumerate(other.ids) if token in ends), None)
        assert one.ids == (other.ids if stop is None else other.ids[: stop + 1])
        assert one.ended == (stop is not None)
    assert [one.ended for one in replies[:2]] == [True, True]


def test_caches_have_room(tmp_path, monkeypatch):
    engine = TransformersEngine(Actor.load(save("llama", tmp_path), CPU), [], rows=100)
    wanted = asked(7)
    assert [len(one) for one in engine._batches(wanted)] == [7]
    # 2 × 2 layers × 2 heads × 8 numbers of 4 bytes: 256 a token, for 60 tokens.
    monkeypatch.setattr(module, "ROOM", 256 * 60)
    batches = list(engine._batches(wanted))
    assert sorted(number for some in batches for number in some) == list(range(7))
    for some in batches:
        longest = max(len(wanted[number].prompt) for number in some) + 9
        assert len(some) == 1 or longest * len(some) <= 60


def test_the_engine_follows_from_model_and_wish(tmp_path):
    plain, adapted = (Actor.load(save("llama", tmp_path), CPU, PolicyModelOptions(lora=rank)) for rank in (0, 2))
    for actor in (plain, adapted):
        assert isinstance(engine(actor, [1], rows=2, context=64), TransformersEngine)
        with pytest.raises(UsageError, match="tied embeddings alone"):
            engine(actor, [1], rows=2, context=64, options=EngineOptions("decoder"))
    assert plain.model.config.vocab_size == VOCABULARY
