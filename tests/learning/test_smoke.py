"""The recipe `smoke`: each stage has its intended effect. The margins are smaller than the effects for the seeds in
docs/training_smoke.md.
"""

from __future__ import annotations

import json

import pytest

from tests.common.chain import MOST, run_of

pytestmark = [pytest.mark.learns, pytest.mark.slow, pytest.mark.timeout(MOST)]


@pytest.fixture(scope="module")
def smoke_run(tmp_path_factory, python_path):
    return run_of("smoke", tmp_path_factory.mktemp("smoke"), python_path)


@pytest.fixture
def lines(smoke_run):
    """A function: the name of a stage in the recipe → its lines of metrics."""

    def found(name):
        (folder,) = smoke_run.glob(f"*-{name}")
        return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]

    return found


def test_pre_training_learns_the_form_of_an_answer(lines):
    first, *_, last = [line["answer_right"] for line in lines("pretrain") if "answer_right" in line]
    # Which schedule is drawn, and whether there is a mistake, cannot be foreseen.
    assert first < 0.1 and last > 0.88


def test_fine_tuning_lowers_its_loss(lines):
    losses = [line["loss"] for line in lines("sft") if "loss" in line]
    assert losses[-1] < 0.3 * losses[0]


def test_rewards_make_the_policy_better_where_it_learns_and_on_tasks_that_it_never_plays(lines):
    begin, *iterations = lines("ppo-single")
    rewards = [line["reward"] for line in iterations]
    assert sum(rewards[3:]) / 3 > sum(rewards[:3]) / 3 + 0.1
    assert iterations[-1]["held_out_reward"] > begin["held_out_reward"] + 0.1
    assert all(line["ratio_left_out_share"] == 0 for line in iterations), "the sampler and the trainer disagree"


def test_rejection_fine_tuning_makes_more_right_and_removes_what_cannot_be_read(lines):
    """The models before and after the stage play the same tasks with the same random numbers."""
    (played,) = [line for line in lines("rft") if line["stage"] == "trajectories"]
    after = lines("ppo-agent")[1]
    assert after["episodes"] == played["episodes"] == 96
    assert played["kept"] > 0 and played.get("left_out_loop", 0) + played.get("left_out_schema", 0) > 0
    assert after["reward"] > played["reward"] + 0.1
    assert after["loop_share"] + after["schema_share"] < played["loop_share"] + played["schema_share"] - 0.1


def test_the_critic_explains_returns_and_is_nearer_to_those_of_tasks_that_it_did_not_learn_from(lines):
    """The explained variance of four tasks that are kept aside depends on chance: docs/training_smoke.md."""
    first, *_, last = lines("critic")
    assert first["train_explained_variance"] == pytest.approx(0, abs=1e-6) and last["train_explained_variance"] > 0.08
    assert last["value_loss"] < 0.97 * first["value_loss"]


def test_several_turns_do_not_make_it_worse(lines):
    begin, *iterations = lines("ppo-agent")
    assert iterations[-1]["held_out_reward"] > begin["held_out_reward"] - 0.15
