"""Trajectories and small models for the tests of this folder."""

from __future__ import annotations

import random

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from kernel_assistant.records import Tier
from kernel_assistant_training.ppo.model.actor import Actor, ValueHead
from kernel_assistant_training.ppo.rewards import Reward
from kernel_assistant_training.ppo.trajectory import ReplySpans, Trajectory

VOCABULARY = 64


def actor(width=32, layers=2, seed=0):
    torch.manual_seed(seed)
    size = {"vocab_size": VOCABULARY, "hidden_size": width, "intermediate_size": 2 * width, "head_dim": width // 2}
    heads = {"num_hidden_layers": layers, "num_attention_heads": 2, "num_key_value_heads": 1}
    rest = {"max_position_embeddings": 131072, "tie_word_embeddings": True, "attn_implementation": "sdpa"}
    return Actor(LlamaForCausalLM(LlamaConfig(**size, **heads, **rest)), ValueHead(width))


def earned(value):
    return Reward(scheme="correctness", value=value, candidate="c", tier=Tier.quick, correct=value > 0)


def trajectory(ids, spans, value, logprobs=None, **fields):
    count = sum(each for _, each in spans)
    said = ReplySpans(tuple(ids), tuple(spans), tuple(logprobs or [0.0] * count))
    known = {"key": "k", "seed": 0, "target": "cpu", "iteration": 0, "stop": "finished"}
    return Trajectory.of(said, reward=earned(value), **(known | fields))


def with_logprobs(played, logprobs):
    """The trajectory with these log-probabilities of the sampler."""
    said, names = played.said(), ("key", "seed", "target", "iteration", "reward", "stop")
    known = {name: getattr(played, name) for name in names}
    return Trajectory.of(ReplySpans(said.ids, said.spans, tuple(logprobs)), **known)


@torch.no_grad()
def with_own_logprobs(model, found):
    """Sets the log-probabilities as if the actor itself had sampled the tokens."""
    said = found.said()
    ids, actions = torch.tensor([said.ids]), torch.zeros(1, len(said.ids), dtype=torch.bool)
    for begin, count in said.spans:
        actions[0, begin : begin + count] = True
    return with_logprobs(found, model(ids, actions).logprobs[actions].tolist())


def several(model, count, seed=0, turns=3):
    """Random trajectories of different lengths; those whose last action is even are right."""
    draw, found = random.Random(seed), []
    for number in range(count):
        ids, spans = [draw.randrange(VOCABULARY) for _ in range(draw.randint(2, 9))], []
        for _ in range(draw.randint(1, turns)):
            length = draw.randint(1, 12)
            spans.append((len(ids), length))
            ids += [draw.randrange(VOCABULARY) for _ in range(length + draw.randint(0, 6))]
        ids = ids[: sum(spans[-1])]
        value = 1.0 if ids[-1] % 2 == 0 else -1.0
        found.append(with_own_logprobs(model, trajectory(ids, spans, value, seed=number)))
    return found
