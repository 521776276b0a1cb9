"""PPO's formulas, compared with slow loops written from the papers; observation tokens must have no effect."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_assistant_training.ppo.updates.advantages import (
    beyond_others,
    discounted,
    explained_variance,
    gae,
    mean_of,
    normalised,
)
from kernel_assistant_training.ppo.updates.importance import RatioBounds, guarded
from kernel_assistant_training.ppo.updates.kl import KlControl
from kernel_assistant_training.ppo.updates.losses import Clip, entropy, k1, k3, policy_loss, ratios, value_loss

GAMMA, LAM = 0.97, 0.9


def batch(seed, rows=4, length=37, share=0.6):
    """Random rewards at actions, values, log-probabilities now and before, and the mask of actions."""
    random = torch.Generator().manual_seed(seed)
    actions = torch.rand(rows, length, generator=random) < share
    actions[:, 0] = False
    actions[:, 1] = True
    rewards = torch.randn(rows, length, generator=random) * actions
    values, now, before = (torch.randn(rows, length, generator=random) for _ in range(3))
    return rewards, values, -now.abs() - 0.1, -before.abs() - 0.1, actions


def by_hand(rewards, values, gamma, lam):
    """The advantages of one episode that has only actions: A_t as the exponentially weighted sum of δ, eq. 16 of
    arXiv:1506.02438.
    """
    count = len(rewards)
    after = [*values[1:], 0.0]
    delta = [rewards[t] + gamma * after[t] - values[t] for t in range(count)]
    return [sum((gamma * lam) ** (k - t) * delta[k] for k in range(t, count)) for t in range(count)]


@pytest.mark.parametrize(("gamma", "lam"), [(GAMMA, LAM), (1.0, 1.0)])
def test_advantages_are_those_of_the_paper_over_actions(gamma, lam):
    rewards, values, _, _, actions = batch(0)
    found = gae(rewards, values, actions, gamma=gamma, lam=lam)
    for row in range(len(rewards)):
        mask = actions[row].numpy()
        known = values[row].numpy()[mask]
        expected = by_hand(rewards[row].numpy()[mask].tolist(), known.tolist(), gamma, lam)
        np.testing.assert_allclose(found.advantages[row].numpy()[mask], expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found.returns[row].numpy()[mask], np.add(expected, known), rtol=1e-5, atol=1e-5)
    assert not found.advantages[~actions].any() and not found.returns[~actions].any()


def test_a_reward_that_nobody_would_get_is_refused():
    rewards, values, _, _, actions = batch(2)
    rewards[0, 0] = 1.0
    with pytest.raises(ValueError, match="at an observation"):
        gae(rewards, values, actions)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 300), st.floats(0, 1))
def test_what_is_summed_by_doubling_is_the_sum(length, factor):
    x = torch.randn(2, length, generator=torch.Generator().manual_seed(length), dtype=torch.float64)
    carried, expected = torch.zeros(2, dtype=torch.float64), []
    for place in reversed(range(length)):
        carried = x[:, place] + factor * carried
        expected.append(carried)
    assert torch.allclose(discounted(x, factor), torch.stack(expected[::-1], 1), rtol=1e-9, atol=1e-9)


def spread(x, places, length, filler):
    """Moves the columns of x (B, T) to the columns `places` (B, T); all other columns get `filler`."""
    return torch.full((len(x), length), filler).scatter(1, places, x)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 1000), st.integers(1, 40), st.sampled_from([0.0, 7.5, -1e6, math.nan]))
def test_observations_change_neither_advantages_nor_losses(seed, more, filler):
    """Observation tokens are inserted at random positions, different in each row, with arbitrary values."""
    rewards, values, now, before, actions = batch(seed, length=23)
    length = actions.shape[1] + more
    random = torch.Generator().manual_seed(seed + 1)
    places = torch.stack([torch.randperm(length, generator=random)[: actions.shape[1]].sort()[0] for _ in actions])
    wider = torch.zeros(len(actions), length, dtype=torch.bool).scatter(1, places, actions)

    def figures(rewards, values, now, before, actions):
        now = now.clone().requires_grad_()
        values = values.clone().requires_grad_()
        told = gae(rewards, values.detach(), actions, gamma=GAMMA, lam=LAM)
        even = normalised(told.advantages, actions)
        guard = guarded(before, before + 0.01, actions, RatioBounds())
        policy = policy_loss(now, before, even, actions, Clip(), guard.weights)
        value = value_loss(values, told.returns, actions, old=values.detach() + 0.3, clip=0.2)
        (policy.loss + value + k3(now, before)[actions].sum()).backward()
        return [
            *(told.advantages[actions], told.returns[actions], even[actions], guard.weights[actions]),
            *(policy.loss.detach(), torch.tensor([policy.clipped, policy.kl]), value.detach()),
            *(now.grad[actions], values.grad[actions]),
            *(torch.tensor(explained_variance(values.detach(), told.returns, actions)), guard.kept),
        ]

    plain = figures(rewards, values, now, before, actions)
    moved = (spread(one, places, length, filler) for one in (values, now, before))
    inserted = figures(spread(rewards, places, length, 0.0), *moved, wider)
    for mine, theirs in zip(plain, inserted, strict=True):
        assert torch.allclose(mine.float(), theirs.float(), rtol=1e-4, atol=1e-5)


def test_the_clipped_loss_is_that_of_the_paper_with_more_room_upwards():
    _, advantages, now, before, actions = batch(3)
    found = policy_loss(now, before, advantages, actions, Clip(0.2, 0.28))
    total = clipped = 0.0
    for row, place in actions.nonzero().tolist():
        ratio, advantage = math.exp(now[row, place] - before[row, place]), float(advantages[row, place])
        bounded = min(max(ratio, 0.8), 1.28)
        total += -min(ratio * advantage, bounded * advantage)
        clipped += -bounded * advantage > -ratio * advantage
    assert float(found.loss) == pytest.approx(total, rel=1e-5)
    assert found.clipped == pytest.approx(clipped / int(actions.sum()))
    assert 0 < found.clipped < 1


def test_a_step_follows_the_advantage_until_the_ratio_is_out_of_bounds():
    now = torch.log(torch.tensor([[1.0, 1.27, 1.29, 0.81, 0.79]])).requires_grad_()
    every = torch.ones(1, 5, dtype=torch.bool)
    for sign, moving in ((1.0, [True, True, False, True, True]), (-1.0, [True, True, True, True, False])):
        now.grad = None
        policy_loss(now, torch.zeros(1, 5), torch.full((1, 5), sign), every, Clip()).loss.backward()
        assert (now.grad[0] != 0).tolist() == moving
        assert (now.grad[0][torch.tensor(moving)] * sign < 0).all()


def test_value_losses_are_half_the_square_and_the_worse_of_both():
    values, old = torch.tensor([[1.0, 3.0, 9.0]]), torch.tensor([[1.0, 0.0, 0.0]])
    returns, actions = torch.tensor([[0.0, 2.0, 0.0]]), torch.tensor([[True, True, False]])
    assert float(value_loss(values, returns, actions, old=old)) == pytest.approx(0.5 * (1 + 1))
    # Held to 0.5, the second is 1.5 away.
    assert float(value_loss(values, returns, actions, old=old, clip=0.5)) == pytest.approx(0.5 * (1 + 1.5**2))


def test_estimators_of_kl_agree_with_it_on_average():
    random = torch.Generator().manual_seed(0)
    mine, other = (torch.randn(50, generator=random).log_softmax(-1) for _ in range(2))
    exact = float((mine.exp() * (mine - other)).sum())
    drawn = torch.multinomial(mine.exp(), 400_000, replacement=True, generator=random)
    for estimate in (k1, k3):
        samples = estimate(mine[drawn], other[drawn])
        assert float(samples.mean()) == pytest.approx(exact, abs=4 * float(samples.std()) / math.sqrt(len(drawn)))
    assert (k3(mine, other) >= 0).all() and (k1(mine, other) < 0).any()
    assert float(k3(torch.tensor(-200.0), torch.tensor(0.0))) < math.exp(21)


def test_entropy_is_that_of_the_distribution():
    logits = torch.randn(3, 11, generator=torch.Generator().manual_seed(4))
    expected = torch.distributions.Categorical(logits=logits).entropy()
    assert torch.allclose(entropy(logits), expected, atol=1e-5)


def test_normalised_advantages_have_mean_0_and_spread_1_over_actions():
    _, values, _, _, actions = batch(5)
    found = normalised(values * 30 + 4, actions)
    assert float(mean_of(found, actions)) == pytest.approx(0, abs=1e-5)
    assert float(found[actions].std(correction=0)) == pytest.approx(1, abs=1e-4)
    assert not normalised(torch.ones(2, 3), torch.ones(2, 3, dtype=torch.bool)).any()


def test_explained_variance():
    returns, every = torch.tensor([[1.0, 2.0, 3.0, 4.0]]), torch.ones(1, 4, dtype=torch.bool)
    assert explained_variance(returns, returns, every) == 1
    assert explained_variance(returns + 5, returns, every) == 1
    assert explained_variance(torch.zeros(1, 4), returns, every) == 0
    assert explained_variance(-returns, returns, every) == pytest.approx(-3)
    assert math.isnan(explained_variance(returns, torch.ones(1, 4), every))


def test_ratios_are_bounded_by_token_and_sequences_left_out_that_disagree():
    actions = torch.ones(5, 100, dtype=torch.bool)
    sampler = torch.full((5, 100), -1.0)
    trainer = sampler.clone()
    trainer[1, 3] += 1.5  # one token, four and a half times as probable
    trainer[2] += 0.06  # all of them a little: another policy
    trainer[3, 5] = -25.0  # all but impossible to the trainer
    sampler[4, 7] = trainer[4, 7] = -25.0  # improbable to both: an honest draw
    found = guarded(trainer, sampler, actions, RatioBounds())
    assert found.kept.tolist() == [True, True, False, False, True]
    assert found.left_out_share == pytest.approx(2 / 5)
    assert found.weights[1].max() == 2.0 and found.weights[1].sum() == 101
    assert not found.weights[2:4].any() and (found.weights[[0, 4]] == 1).all()
    assert found.capped_share == pytest.approx(1 / 500)
    assert found.largest == pytest.approx(math.exp(1.5))


def test_a_ratio_is_always_a_number():
    assert torch.isfinite(ratios(torch.tensor([0.0, -300.0]), torch.tensor([-300.0, 0.0]))).all()


def test_the_coefficient_follows_the_kl():
    fixed = KlControl(0.1)
    assert fixed.after(5.0, 1000) == fixed
    control = KlControl(0.1, target=0.02, horizon=1000)
    assert control.after(1.0, 1000).coefficient == pytest.approx(0.12)
    assert control.after(0.0, 500).coefficient == pytest.approx(0.09)
    assert control.after(0.02, 1000) == control
    for _ in range(40):
        control = control.after(0.0008 / control.coefficient, 1000)
    assert control.coefficient == pytest.approx(0.04, rel=1e-2)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(-3, 3)), max_size=24))
def test_rewards_beyond_a_groups_others_are_those_of_a_slow_loop(drawn):
    groups, rewards = [group for group, _ in drawn], [reward for _, reward in drawn]
    for place, found in enumerate(beyond_others(rewards, groups)):
        others = [one for n, one in enumerate(rewards) if n != place and groups[n] == groups[place]]
        assert found == pytest.approx(rewards[place] - np.mean(others) if others else 0.0, abs=1e-9)
