"""Tests generation: both engines give the same replies, rounds alternate, and they end after an error."""

from __future__ import annotations

import threading

import pytest
import torch

from kernel_assistant_training.decode import GenerationRequest, Reply
from kernel_assistant_training.ppo.engines.engine import DecoderEngine, engine
from kernel_assistant_training.ppo.engines.engine_transformers import TransformersEngine
from kernel_assistant_training.ppo.rounds import RoundScheduler
from tests.ppo.trajectories import VOCABULARY, actor

END = 7


@pytest.fixture(scope="module")
def model():
    found = actor(width=128, layers=2)
    with torch.no_grad():
        for weight in found.model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return found


def prompts(count):
    generator = torch.Generator().manual_seed(1)
    lengths = [3 + 5 * number % 17 for number in range(count)]
    return [torch.randint(8, VOCABULARY, (length,), generator=generator).tolist() for length in lengths]


def test_both_engines_give_the_same_replies_and_log_probabilities(model):
    loop = engine(model, [END], rows=4, context=256)
    assert isinstance(loop, DecoderEngine)
    plain = TransformersEngine(model, [END], rows=3)
    asked = [GenerationRequest(prompt, temperature=0.0, most=6 + 5 * n) for n, prompt in enumerate(prompts(7))]
    mine, theirs = loop.decode(asked), plain.decode(asked)
    assert [one.ids for one in mine] == [one.ids for one in theirs]
    assert [one.ended for one in mine] == [one.ended for one in theirs]
    for one, other in zip(mine, theirs, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-3)


def test_what_transformers_samples_follows_the_seed_and_not_its_company(model):
    plain = TransformersEngine(model, [END], rows=5)
    asked = [GenerationRequest(prompt, seed=number, most=9) for number, prompt in enumerate(prompts(5))]
    together = plain.decode(asked)
    assert [plain.decode([one])[0].ids for one in asked] == [one.ids for one in together]
    other = plain.decode([GenerationRequest(one.prompt, seed=one.seed + 50, most=9) for one in asked])
    assert [one.ids for one in other] != [one.ids for one in together]


def test_other_weights_go_to_the_decoder(model):
    loop = engine(model, [END], rows=2, context=256)
    asked = [GenerationRequest(prompts(1)[0], temperature=0.0, most=12)]
    before = loop.decode(asked)
    other = actor(width=128, layers=2, seed=9)
    loop.load(other)
    (expected,) = TransformersEngine(other, [END], rows=1).decode(asked)
    assert loop.decode(asked)[0].logprobs == pytest.approx(expected.logprobs, abs=1e-3)
    assert loop.decode(asked) != before


def test_rounds_alternate_and_everybody_is_asked_together():
    rounds = []

    def answer(asked):
        rounds.append(("reply", [one.seed for one in asked]))
        return [Reply([one.seed], [0.0], True, []) for one in asked]

    def judge(asked):
        rounds.append(("judge", len(asked)))
        return [None] * len(asked)

    def conversation(number):
        def run(seat):
            for turn in range(number + 1):
                assert seat.reply(GenerationRequest([1], seed=10 * number + turn)).ids == [10 * number + turn]
            return seat.evaluation(number) or number

        return run

    ended, conversations = [], [conversation(number) for number in range(3)]
    RoundScheduler[int](answer, judge).play(conversations, lambda *one: ended.append(one))
    assert rounds == [("reply", [0, 10, 20]), ("reply", [11, 21]), ("reply", [22]), ("judge", 3)]
    assert sorted(ended) == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.parametrize("where", ["engine", "conversation"])
def test_what_breaks_is_raised_and_nobody_is_left_waiting(where):
    def answer(asked):
        if where == "engine":
            raise RuntimeError("broken")
        return [Reply([1], [0.0], True, []) for _ in asked]

    def conversation(number):
        def run(seat):
            seat.reply(GenerationRequest([1]))
            if number == 1:
                raise RuntimeError("broken")
            seat.reply(GenerationRequest([1]))

        return run

    before, scheduler = set(threading.enumerate()), RoundScheduler[None](answer, lambda asked: [])
    with pytest.raises(RuntimeError, match="broken"):
        scheduler.play([conversation(number) for number in range(5)], lambda *one: None)
    assert not set(threading.enumerate()) - before
