"""Whole stages with the real environment: a model that tosses a coin learns which side compiles."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace

import pytest
import torch

from kernel_assistant_training.ppo.actor import Actor
from kernel_assistant_training.ppo.batches import Rows
from kernel_assistant_training.ppo.kl import KlControl
from kernel_assistant_training.ppo.play import PlayOptions
from kernel_assistant_training.ppo.stage import StageOptions, run
from kernel_assistant_training.ppo.store import TrajectoryStore
from kernel_assistant_training.ppo.update import UpdateOptions

CPU = torch.device("cpu")


@pytest.fixture
def options(coin, tmp_path):
    return StageOptions(
        stage="ppo_single",
        base=coin.folder,
        out=tmp_path / "run",
        target="cpu",
        iterations=1,
        episodes=12,
        rows=12,
        cache=coin.cache,
        play=PlayOptions(scheme="correctness", turns=1, reply=100, context=512),
        update=UpdateOptions(rate=2e-4, head_rate=2e-4, steps=1, warmup=1, lam=1.0),
        kl=KlControl(0.01),
    )


def lines(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_it_learns_what_compiles_and_goes_on_where_it_stopped(options, coin):
    run(options, [coin.task], CPU)
    store = TrajectoryStore(options.out)
    (start, line), first = lines(options.out), list(store.read(1))
    assert (start["step"], line["step"], len(first)) == (0, 1, 12)
    seen = Counter(one.outcomes[0] if one.outcomes else "none" for one in first)
    assert seen["correct"] and seen["compile_error"]
    for one in first:
        assert one.reward.value == (1 if one.outcomes == ("correct",) else -1)
        assert one.turns == 1 and one.calls[0] in ("evaluate", "idle", "schema")
    assert line["reward"] == sum(one.reward.value for one in first) / 12
    assert line["ratio_left_out_share"] == 0 and line["kl_sampler"] < 1e-3

    newest = run(replace(options, iterations=3), [coin.task], CPU)
    assert newest.name == "checkpoint-000003"
    assert [line["step"] for line in lines(options.out)] == [0, 1, 2, 3]
    assert list(store.read(1)) == first
    everything = list(store.all())
    assert len(everything) == 36
    judged = (options.out / "evaluations.jsonl").read_text().splitlines()
    different = {candidate for one in everything for candidate in one.candidates}
    assert len(judged) == len(different) < 36, "each identical candidate was judged once, also after the second start"

    before, after = (likelihoods(folder, first) for folder in (coin.folder, newest))
    assert after[1] > before[1] + 0.1
    assert after[-1] < before[-1] - 0.1
    # The head was trained beside it, and comes back with the checkpoint.
    assert Actor.load(newest, CPU).head.out.weight.any()


def test_an_iteration_that_was_cut_off_plays_only_what_is_missing(options, coin):
    run(options, [coin.task], CPU)
    file = options.out / "trajectories-000001.jsonl"
    whole = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(whole[:7]) + whole[7][:100])
    for folder in options.out.glob("checkpoint-000001"):
        shutil.rmtree(folder)
    run(options, [coin.task], CPU)
    again = file.read_bytes().splitlines(keepends=True)
    assert again[:7] == whole[:7] and len(again) == 12
    assert sorted(json.loads(line)["seed"] for line in again) == list(range(12))
    assert [line["step"] for line in lines(options.out)] == [0, 1]


def likelihoods(folder, trajectories):
    """Mean log-probability of what was rewarded with 1 and with −1."""
    actor, found = Actor.load(folder, CPU), {}
    for value in (1, -1):
        said = [one.said() for one in trajectories if one.reward.value == value]
        rows = Rows.of(said, range(len(said)), CPU)
        with torch.no_grad():
            found[value] = float(actor(rows.ids, rows.actions).logprobs.sum()) / len(said)
    return found
