"""Answers in the order of the probabilities of their beginnings, of an invented distribution and of a real engine."""

from __future__ import annotations

import math
from itertools import product

import pytest

from kernel_assistant.errors import Cancelled
from kernel_assistant.policy.client import Request
from kernel_assistant.policy.embedded import EmbeddedClient, FirstReplyCache
from kernel_assistant.serving.llama.best_first import BestFirstSearch
from kernel_assistant.serving.llama.embedded import EmbeddedModel, Sampling

#: Of the tokens 0, 1, 2 at each of three places, whatever came before.
SHARES = ((0.6, 0.3, 0.1), (0.5, 0.45, 0.05), (0.9, 0.08, 0.02))


def answer(begun):
    """The greedy answer, with the likeliest tokens at each position."""
    ids = [*begun.ids]
    ids += [max(range(3), key=lambda token: share[token]) for share in SHARES[len(ids) :]]
    logprobs = [math.log(share[token]) for share, token in zip(SHARES, ids, strict=True)]
    return ids, logprobs, [[(token, math.log(part)) for token, part in enumerate(share)] for share in SHARES]


def test_each_answer_comes_once_and_goes_on_from_the_likeliest_beginning_left():
    search, found, costs = BestFirstSearch(), [], []
    while (begun := search.next()) is not None:
        ids, logprobs, others = answer(begun)
        assert begun.cost == pytest.approx(-sum(begun.logprobs)) and tuple(logprobs[: len(begun.ids)]) == begun.logprobs
        search.add(begun, ids, logprobs, others)
        found.append(tuple(ids))
        costs.append(begun.cost)
    assert found[:4] == [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0)]  # shares 1, 0.3, 0.27, 0.135
    assert sorted(found) == list(product(range(3), repeat=3))
    assert costs == sorted(costs)


def test_a_begun_reply_is_a_whole_one(tiny, engine):
    model = EmbeddedModel(engine)
    greedy = model.answer(tiny.module.QUESTION, Sampling(temperature=0.0))
    search = BestFirstSearch()
    begun = search.next()
    search.add(begun, greedy.message.token_ids, greedy.message.logprobs, greedy.others)
    begun = search.next()
    reply = model.complete(tiny.module.QUESTION, Sampling(temperature=0.0, begun=begun, max_tokens=60))
    place = len(begun.ids) - 1
    assert reply.token_ids[: place + 1] == begun.ids and reply.token_ids != greedy.message.token_ids
    assert reply.token_ids[:place] == greedy.message.token_ids[:place]
    assert len(reply.logprobs) == len(reply.token_ids) <= 60
    assert reply.usage.completion_tokens == len(reply.token_ids) - len(begun.ids)
    assert begun.logprobs[place] < greedy.message.logprobs[place]
    for others, token in zip(greedy.others, greedy.message.token_ids, strict=True):
        assert not others or max(others, key=lambda one: one[1])[0] == token


def test_conversations_about_one_job_begin_differently(tiny, engine):
    first = FirstReplyCache()
    asked = Request(messages=tiny.module.QUESTION, max_tokens=200)
    clients = [EmbeddedClient(engine, "tiny", seed=seed, first=first) for seed in range(4)]
    replies = [client.complete(asked, lambda: False) for client in clients]
    assert replies[0].content == tiny.module.ANSWER
    assert len({reply.token_ids for reply in replies}) == 4
    again = EmbeddedClient(engine, "tiny", seed=3).complete(asked, lambda: False)
    assert again.token_ids == replies[0].token_ids  # another job begins anew, whatever its seed
    with first._lock, pytest.raises(Cancelled, match="another conversation"):
        EmbeddedClient(engine, "tiny", seed=1, first=first).complete(asked, lambda: True)
