"""The update: tests what it learns, what must not change it, what stops it, and how long an episode may be."""

from __future__ import annotations

import copy
from dataclasses import replace
from random import Random
from statistics import mean

import pytest
import torch
from transformers import Lfm2Config, Lfm2ForCausalLM

from kernel_assistant_training.ppo.model.actor import Actor, ValueHead
from kernel_assistant_training.ppo.store import TrajectoryStore
from kernel_assistant_training.ppo.trajectory import ReplySpans
from kernel_assistant_training.ppo.updates.batches import PaddedBatch, in_steps
from kernel_assistant_training.ppo.updates.importance import RatioBounds
from kernel_assistant_training.ppo.updates.kl import KlControl
from kernel_assistant_training.ppo.updates.update import Learner, NotFiniteError, UpdateOptions, last_action_rewards
from tests.ppo.trajectories import VOCABULARY, actor, several, trajectory, with_logprobs, with_own_logprobs

FAST = UpdateOptions(rate=3e-3, head_rate=1e-2, steps=1, warmup=1)
NO_KL = KlControl(0.0)
#: Short episodes, which went well, and long ones, which did not.
LENGTHS = [200 + number % 7 for number in range(48)] + [1800 + number % 7 for number in range(16)]


def weights(model):
    return {name: weight.clone() for name, weight in model.state_dict().items()}


def test_padding_and_the_cut_into_pieces_change_nothing():
    model = actor()
    found = several(model, 9)
    results = []
    for budget in (1, 60, 10_000):
        learner = Learner(copy.deepcopy(model), replace(FAST, budget=budget), KlControl(0.1))
        metrics = learner.update(found, Random(0))
        results.append((metrics, weights(learner.actor)))
    for metrics, after in results[1:]:
        assert metrics == pytest.approx(results[0][0], abs=2e-4, nan_ok=True)
        assert all(torch.allclose(after[name], results[0][1][name], atol=2e-4) for name in after)


@pytest.mark.parametrize("budget", [8192, 1000])
def test_each_is_in_one_step_and_pieces_keep_to_the_budget(budget):
    steps = in_steps(LENGTHS, budget, 4, Random(0))
    assert sorted(number for step in steps for piece in step for number in piece) == list(range(64))
    assert [sum(map(len, step)) for step in steps] == [16] * 4
    for piece in (piece for step in steps for piece in step):
        # One that is longer than the budget is alone.
        assert len(piece) == 1 or len(piece) * max(LENGTHS[number] for number in piece) <= budget


def test_there_are_as_many_steps_as_asked_for_even_where_all_fits_into_one_piece():
    assert len(in_steps([100] * 8, 1 << 20, 4, Random(0))) == 4
    assert len(in_steps([100] * 3, 1 << 20, 4, Random(0))) == 3


def test_no_step_has_the_long_ones_alone():
    for seed in range(20):
        steps = in_steps(LENGTHS, 8192, 4, Random(seed))
        shares = [mean(LENGTHS[number] > 1000 for piece in step for number in piece) for step in steps]
        assert max(shares) < 0.75 and min(shares) < 0.3


def test_the_same_random_numbers_deal_alike_and_others_do_not():
    assert in_steps(LENGTHS, 8192, 4, Random(3)) == in_steps(LENGTHS, 8192, 4, Random(3))
    assert in_steps(LENGTHS, 8192, 4, Random(3)) != in_steps(LENGTHS, 8192, 4, Random(4))


def test_the_reward_stands_at_the_last_action():
    said = [ReplySpans(tuple(range(1, 9)), ((2, 2), (6, 2)), (0.0,) * 4), ReplySpans((1, 2, 3), ((1, 1),), (0.0,))]
    rows = PaddedBatch.of(said, [0, 1], torch.device("cpu"))
    assert last_action_rewards([2.0, -1.0], rows.actions).nonzero().tolist() == [[0, 7], [1, 1]]


def test_what_is_rewarded_becomes_likelier():
    """There is one prompt with two answers, one of them right: after a few updates the right answer is likelier and the
    other one less likely.
    """
    model = actor()
    prompt, right, wrong = [5, 6, 7], [11, 12, 13], [11, 22, 23]
    both = [trajectory(prompt + answer, [(3, 3)], value) for answer, value in ((right, 1.0), (wrong, -1.0))]
    learner = Learner(model, FAST, KlControl(0.01))
    before = [sum(with_own_logprobs(model, one).said().logprobs) for one in both]
    for number in range(6):
        metrics = learner.update([with_own_logprobs(model, one) for one in both], Random(number))
    after = [sum(with_own_logprobs(model, one).said().logprobs) for one in both]
    assert after[0] > before[0] + 0.5
    assert after[1] < before[1]
    assert metrics["kl_reference"] > 0 and metrics["gradient_norm"] > 0
    reference = sum(with_own_logprobs(learner.reference, both[0]).said().logprobs)
    assert reference == pytest.approx(before[0], abs=1e-4)


def test_values_never_move_the_policy():
    """If all advantages are zero, only the head changes: the gradient of the value loss does not reach the language
    model.
    """
    model = actor()
    found = [with_own_logprobs(model, trajectory([5, 6, 7], [(2, 1)], 1.0, seed=number)) for number in range(3)]
    learner = Learner(model, FAST, NO_KL)
    before = weights(model)
    metrics = learner.update(found, Random(0))
    after = weights(model)
    assert metrics["head_gradient_norm"] > 0
    moved = {name for name in after if not torch.equal(before[name], after[name])}
    assert moved == {"head.out.weight", "head.out.bias"}


def test_against_a_tasks_other_episodes_only_tasks_that_were_not_all_alike_are_learned():
    """An easy task and a hard one have no effect; the two episodes of a third task count as if they had twice their
    rewards.
    """
    model = actor()

    def told(key, *values):
        answers = ([5, 6, 7, 20 + number] for number in range(len(values)))
        found = (trajectory(ids, [(3, 1)], one, key=key) for ids, one in zip(answers, values, strict=True))
        return [with_own_logprobs(model, one) for one in found]

    drawn = told("easy", 1.0, 1.0) + told("mixed", 0.5, -0.5) + told("hard", -1.0, -1.0) + told("alone", 1.0)
    others, plain, nothing = (copy.deepcopy(model) for _ in range(3))
    against = replace(FAST, baseline="others")
    metrics = Learner(others, against, NO_KL).update(drawn, Random(0))
    assert metrics["episodes_learned"] == 2 and metrics["return_mean"] == pytest.approx(0.0, abs=1e-6)
    Learner(plain, FAST, NO_KL).update(told("mixed", 1.0, -1.0), Random(0))
    assert all(torch.equal(one, other) for one, other in zip(others.parameters(), plain.parameters(), strict=True))
    # Where none differs, nobody is told anything: values alone move.
    metrics = Learner(nothing, against, NO_KL).update(told("easy", 1.0, 1.0), Random(0))
    assert metrics["episodes_learned"] == 2 and metrics["return_mean"] == 0.0


def test_what_the_sampler_says_otherwise_is_left_out():
    model = actor()
    good, other = several(model, 2)
    bad = with_logprobs(other, [one + 1.0 for one in other.said().logprobs])
    both = copy.deepcopy(model)
    one = Learner(both, FAST, NO_KL).update([good, bad], Random(0))
    assert one["ratio_left_out_share"] == 0.5 and one["actions"] == good.actions
    alone = copy.deepcopy(model)
    Learner(alone, FAST, NO_KL).update([good], Random(0))
    pairs = zip(both.parameters(), alone.parameters(), strict=True)
    assert all(torch.allclose(mine, theirs, atol=1e-6) for mine, theirs in pairs)
    with pytest.raises(NotFiniteError, match="as probable"):
        Learner(model, FAST, NO_KL).update([bad], Random(0))


def test_what_is_not_finite_stops_before_the_step():
    model = actor()
    found = several(model, 4)
    learner = Learner(model, FAST, NO_KL)
    learner.update(found, Random(0))
    found = several(model, 4)
    with torch.no_grad():
        model.head.out.bias.fill_(float("nan"))
    before = weights(model)
    with pytest.raises(NotFiniteError, match="not finite"):
        learner.update(found, Random(0))
    after = weights(model)
    assert all(torch.equal(before[name], after[name]) for name in after if "head" not in name)


@pytest.mark.learns
def test_an_episode_of_200_turns_and_one_of_128k_tokens_pass_through(tmp_path):
    """Tests the store, GAE and one update. The model has short convolutions, because attention over 128k tokens takes
    minutes on two cores; the code around the model is the same.
    """
    torch.manual_seed(0)
    size = {"vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 16, "max_position_embeddings": 131072}
    layer = {"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "layer_types": ["conv"]}
    model = Actor(Lfm2ForCausalLM(Lfm2Config(**size, **layer, tie_word_embeddings=True)), ValueHead(16))
    ids = Random(0).choices(range(VOCABULARY), k=131072)
    long = trajectory(ids, [(begin, 300) for begin in range(1000, 131072 - 300, 2000)], 1.0, seed=1)
    turns = trajectory(ids[-4100:], [(20 * turn, 12) for turn in range(2, 202)], -1.0, seed=2)
    assert (long.length, turns.turns) == (131072, 200)
    store = TrajectoryStore(tmp_path)
    for one in (long, turns):
        store.add(with_own_logprobs(model, one))
    store.close()
    learner = Learner(model, replace(FAST, bounds=RatioBounds()), KlControl(0.01))
    before = weights(model)
    metrics = learner.update(list(TrajectoryStore(tmp_path).read(0)), Random(0))
    assert metrics["tokens"] == 131072 + 4100
    assert metrics["actions"] == long.actions + turns.actions
    # Values begin at 0, so the targets of a row sum to the reward at each of its actions (λ of the critic is 1).
    assert metrics["return_mean"] == pytest.approx((long.actions - turns.actions) / metrics["actions"])
    name = "model.model.embed_tokens.weight"
    assert not torch.equal(before[name], model.state_dict()[name])
