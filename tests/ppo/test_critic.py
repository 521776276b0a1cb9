"""Critic pre-training: the explained variance of held-out tasks rises, and the policy does not change."""

from __future__ import annotations

import copy
import json
import math
import random
import shutil
from dataclasses import replace

import pytest
import torch

from kernel_assistant.errors import UsageError
from kernel_assistant_training.architecture import SMALL, Llama
from kernel_assistant_training.folder import load_folder, save_folder
from kernel_assistant_training.options.command_line import parse
from kernel_assistant_training.options.commands import run_command
from kernel_assistant_training.options.stages import CriticArguments
from kernel_assistant_training.ppo.critic import CriticOptions, apart, pretrain
from kernel_assistant_training.ppo.model.actor import Actor
from kernel_assistant_training.ppo.store import TrajectoryStore
from kernel_assistant_training.stages import critic
from tests.ppo.trajectories import VOCABULARY, actor, trajectory

EASY, HARD = 5, 6


def episodes(count):
    """The prompts say whether the task is easy: most episodes of easy tasks are right, few of the others."""
    draw, found = random.Random(0), []
    for number in range(count):
        kind = draw.choice((EASY, HARD))
        ids = [kind, *draw.choices(range(8, VOCABULARY), k=3)]
        spans = [(len(ids), 6)]
        ids += draw.choices(range(8, VOCABULARY), k=6)
        right = draw.random() < (0.95 if kind == EASY else 0.05)
        found.append(trajectory(ids, spans, 1.0 if right else -1.0, key=f"t{number % 40}", seed=number))
    return found


def test_the_head_learns_what_tasks_are_worth():
    model = actor()
    before = copy.deepcopy(model.model.state_dict())
    figures = pretrain(model, episodes(200), CriticOptions(epochs=12, rate=1e-2, budget=400))
    variance = [one["explained_variance"] for one in figures]
    assert abs(variance[0]) < 1e-6
    assert variance[-1] > 0.4 and figures[-1]["value_loss"] < 0.6 * figures[0]["value_loss"]
    after = model.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in after)


def test_tasks_are_kept_aside_whole():
    aside, rest = apart(episodes(200), 0.2, 0)
    assert len({one.key for one in aside}) == 8
    assert not {one.key for one in aside} & {one.key for one in rest}
    assert len(aside) + len(rest) == 200
    with pytest.raises(UsageError, match="too few tasks"):
        pretrain(actor(), [one for one in episodes(50) if one.key == "t1"], CriticOptions())


def test_the_stage_saves_each_epoch_and_goes_on(tmp_path):
    torch.manual_seed(0)
    shape = replace(SMALL, vocabulary=VOCABULARY, width=64, inner=64, layers=1, heads=1)
    save_folder(Llama(shape), tmp_path / "base")
    store = TrajectoryStore(tmp_path / "played")
    for one in episodes(80):
        store.add(one)
    store.close()
    words = f"--base {tmp_path}/base --trajectories {tmp_path}/played --out {tmp_path}/run"
    options = parse(CriticArguments, "critic", f"{words} --epochs 2 --rate 1e-2 --budget 400".split())
    assert critic.train(options).name == "checkpoint-000002"
    newest = critic.train(replace(options, epochs=4))
    assert newest.name == "checkpoint-000004"
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2, 2, 3, 4]
    assert {line["stage"] for line in lines} == {"critic"}
    assert not math.isnan(lines[-1]["explained_variance"])
    assert lines[3]["value_loss"] == pytest.approx(lines[2]["value_loss"], rel=0.05), "bf16 keeps what was learned"
    base, trained = load_folder(tmp_path / "base").state_dict(), load_folder(newest).state_dict()
    assert all(torch.equal(base[name], trained[name]) for name in base)
    assert Actor.load(newest, torch.device("cpu")).head.out.weight.any()


@pytest.mark.learns
@pytest.mark.slow
def test_without_trajectories_the_model_plays_its_own(coin, tmp_path):
    shutil.copytree(coin.cache, tmp_path, dirs_exist_ok=True)
    words = f"--base {coin.folder} --out {tmp_path} --target cpu --reward correctness --tasks 5 --episodes 1".split()
    words += "--turns 1 --reply 5 --only relu,gelu --level 1".split()
    run_command("critic", [*words, "--epochs", "1"])
    played = (tmp_path / "trajectories-000001.jsonl").read_bytes()
    keys = {json.loads(line)["key"] for line in played.splitlines()}
    assert len(keys) == 5 and (tmp_path / "checkpoint-000001" / "value" / "head.safetensors").is_file()
    run_command("critic", [*words, "--epochs", "2"])
    assert (tmp_path / "trajectories-000001.jsonl").read_bytes() == played, "they are there"
    assert (tmp_path / "checkpoint-000002").is_dir()
