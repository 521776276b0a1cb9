"""Whole stages in the real environment: a model with two equally likely replies learns which of them compiles."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
import torch

from kernel_assistant.errors import UsageError
from kernel_assistant.session.training_run import RunState, read_status
from kernel_assistant_training.conversation import Encoder
from kernel_assistant_training.folder import load_folder
from kernel_assistant_training.options.commands import run_command
from kernel_assistant_training.options.stages import RftArguments
from kernel_assistant_training.ppo.ended import ended
from kernel_assistant_training.ppo.model.actor import Actor
from kernel_assistant_training.ppo.play import IterationContext, PlayOptions
from kernel_assistant_training.ppo.run_folder import copy_around
from kernel_assistant_training.ppo.stage import run
from kernel_assistant_training.ppo.store import TrajectoryStore
from kernel_assistant_training.ppo.trajectory import ReplySpans
from kernel_assistant_training.ppo.updates.batches import PaddedBatch
from kernel_assistant_training.ppo.updates.update import NotFiniteError
from kernel_assistant_training.stages import rft
from kernel_assistant_training.tokenizer import load
from tests.ppo.conftest import conversations, heard, said
from tests.ppo.trajectories import trajectory

CPU = torch.device("cpu")
pytestmark = pytest.mark.slow


def lines(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.learns
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
    # A reply may reach its limit after the call.
    in_time = Counter(one.outcomes[0] for one in first if one.outcomes and ended(one) != "cut_off")
    assert (line["ended_right"], line["ended_not_compiled"]) == (seen["correct"], in_time["compile_error"])
    assert sum(value for name, value in line.items() if name.startswith("ended_")) == 12
    assert line["ratio_left_out_share"] == 0 and line["kl_sampler"] < 1e-3

    # The base is not needed again: another machine may go on.
    newest = run(replace(options, iterations=3, base=Path("/nowhere")), [coin.task], CPU)
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


def likelihoods(folder, trajectories):
    """The mean log-probabilities of the replies with reward 1, and of those with reward −1."""
    actor, found = Actor.load(folder, CPU), {}
    for value in (1, -1):
        said = [one.said() for one in trajectories if one.reward.value == value]
        rows = PaddedBatch.of(said, range(len(said)), CPU)
        with torch.no_grad():
            found[value] = float(actor(rows.ids, rows.actions).logprobs.sum()) / len(said)
    return found


@pytest.mark.learns
def test_what_is_not_finite_ends_with_a_checkpoint_that_can_be_used(options, coin, tmp_path):
    actor, base = Actor.load(coin.folder, CPU), tmp_path / "base"
    with torch.no_grad():
        actor.head.out.bias.fill_(float("nan"))
    base.mkdir()
    copy_around(coin.folder, base)
    actor.save(base)
    broken = replace(options, base=base, episodes=2, play=replace(options.play, reply=10))
    with pytest.raises(NotFiniteError, match=r"not finite.*; the last checkpoint is .*checkpoint-000000"):
        run(broken, [coin.task], CPU)
    assert read_status(options.out).state is RunState.failed
    assert "checkpoint-000000" in read_status(options.out).message
    load_folder(options.out / "checkpoint-000000")
    found = list(TrajectoryStore(options.out).read(1))
    # Ten tokens are no answer.
    assert len(found) == 2 and all(one.cut_off for one in found)


@pytest.mark.learns
def test_tasks_that_are_not_timed_are_verified_and_earn_one_at_most(options, coin):
    play = replace(options.play, scheme="milestone")
    run(replace(options, play=play, timed=0.0), [coin.task], CPU)
    (_, line), found = lines(options.out), list(TrajectoryStore(options.out).read(1))
    assert {one.reward.value for one in found} == {-1.0, 1.0}
    judged = [json.loads(one)["evaluation"] for one in (options.out / "evaluations.jsonl").read_text().splitlines()]
    assert {one["tier"] for one in judged} == {"verify"} and not any(one["timing"] for one in judged)
    assert {one.eager_ms for one in found} == {0.0}, "PyTorch is not timed either"
    assert "faster_eager_rate" not in line and line["pass_rate"] > 0


def test_the_lot_decides_for_each_task_whether_it_is_timed():
    def share(timed, iteration):
        context = IterationContext(None, None, PlayOptions(), iteration, run_seed=0, timed_share=timed)
        return [context.timed(f"task {number}") for number in range(400)]

    assert not any(share(0.0, 1)) and all(share(1.0, 1))
    assert 60 < sum(share(0.25, 1)) < 140
    assert share(0.25, 1) == share(0.25, 1) != share(0.25, 2)


def test_a_share_of_timed_tasks_that_cannot_be_is_refused(options):
    with pytest.raises(UsageError, match="no share"):
        replace(options, timed=1.5)
    with pytest.raises(UsageError, match="later replies"):
        replace(options, timed=0.5, play=replace(options.play, turns=2))
    with pytest.raises(UsageError, match="full prompt"):
        replace(options, timed=0.0, play=replace(options.play, profile="full"))


def test_a_run_from_before_tasks_could_be_left_untimed_goes_on(options):
    assert "timed" not in options.asked() and "timed" not in options.asked()["play"]
    assert replace(options, timed=0.5).asked()["timed"] == 0.5


@pytest.mark.learns
def test_several_turns_are_one_trajectory(options, coin):
    play = PlayOptions(scheme="correctness", turns=3, reply=100, context=1024)
    several = replace(options, stage="ppo_agent", episodes=6, play=play)
    run(several, [coin.task], CPU)
    (_, line), found = lines(options.out), list(TrajectoryStore(options.out).read(1))
    assert len(found) == 6 and {one.turns for one in found} <= {1, 2, 3} and any(one.turns == 3 for one in found)
    for one in found:
        judged = [call for call in one.calls if call == "evaluate"]
        assert len(one.calls) == one.turns and len(judged) == len(one.candidates) == len(one.outcomes)
        assert one.reward.correct == ("correct" in one.outcomes)
        # Something was read between two replies, and the last token is the model's.
        assert all(begin + count < following for (begin, count), (following, _) in pairwise(one.spans))
        assert one.length == sum(one.spans[-1])
        assert one.stop in ("finished", "turns", "no_progress", "tokens")
    assert line["episode_turns"] == pytest.approx(sum(one.turns for one in found) / 6)
    # What the decoder said of its tokens, over all turns and with a cache, is what the trainer says of them.
    assert line["ratio_left_out_share"] == 0 and line["kl_sampler"] < 1e-3


@pytest.mark.learns
def test_fine_tuning_learns_what_is_right_and_not_what_repeats_itself(coin, tmp_path):
    pytest.importorskip("accelerate", reason="accelerate is not installed: pip install 'kernel-assistant[train]'")
    repeated = [said(coin.wrong), heard("compile L4 ‘undeclared’ was not declared in this scope")]
    clean, faulty = conversations(coin.task, coin.right, coin.wrong, Random(5))
    loops = [*faulty[:2], *repeated, *repeated, *faulty[4:]]
    store, found = TrajectoryStore(tmp_path / "played"), []
    for number in range(4):
        for kind, (messages, calls) in enumerate(((clean, "cf"), (loops, "xxxcf"))):
            found.append(episode(messages, calls, f"task {number}", kind, coin.folder))
            store.add(found[-1])
    store.close()
    folders = {"base": coin.folder, "out": tmp_path / "run", "trajectories": (tmp_path / "played",)}
    steps = {"trainer": "transformers", "most_each": 8, "epochs": 1.0, "steps": 16, "seconds": 0.0, "rate": 3e-4}
    figures = rft.train(RftArguments(**folders, **steps, batch=4, accumulate=1, seed=0, checkpoint_seconds=60.0))
    assert (figures["kept"], figures["left_out"]) == (4, {"loop": 4})
    first = {-1: coin.wrong, 1: coin.right}
    prompt = Encoder(load()).prompt(clean[:2])
    models = (coin.folder, tmp_path / "run" / "model")
    before, after = ({value: begins(model, prompt, text) for value, text in first.items()} for model in models)
    assert after[1] > before[1] and after[-1] < before[-1] - 0.5
    assert lines(tmp_path / "run")[0]["kept"] == 4


@pytest.mark.learns
def test_without_an_episode_to_learn_from_it_says_why_and_keeps_what_was_played(coin, tmp_path):
    shutil.copytree(coin.cache, tmp_path, dirs_exist_ok=True)
    words = f"--base {coin.folder} --out {tmp_path} --target cpu --reward correctness --trainer transformers".split()
    words += "--tasks 1 --episodes 2 --turns 1 --reply 5".split()
    for _ in range(2):
        with pytest.raises(UsageError, match="no episode is fit"):
            run_command("rft", words)
    assert len(list(TrajectoryStore(tmp_path).all())) == 2
    first, again = lines(tmp_path)
    assert first["left_out_reward"] == again["left_out_reward"] == 2 and first["kept"] == 0


def episode(messages, calls, key, number, folder):
    """An episode with the given calls; each letter of `calls` is a reply: c is right, x is wrong, f is `finish`."""
    tokens = Encoder(load()).encode(messages)
    spans, begin = [], None
    for place, mark in enumerate([*tokens.learned, False]):
        if mark and begin is None:
            begin = place
        if not mark and begin is not None:
            spans.append((begin, place - begin))
            begin = None
    names = {"c": "evaluate", "x": "evaluate", "f": "finish"}
    outcomes = tuple("correct" if one == "c" else "compile_error" for one in calls if one in "cx")
    said = {"calls": tuple(names[one] for one in calls), "candidates": tuple(one for one in calls if one in "cx")}
    ids = tokens.ids[: sum(spans[-1])]
    return trajectory(ids, spans, 1.0, key=key, seed=number, outcomes=outcomes, **said)


def begins(folder, prompt, text):
    """The log-probability that the first reply is `text`."""
    encoder = Encoder(load())
    reply = encoder.encode([said(text)])
    ids = [one for one, mark in zip(reply.ids, reply.learned, strict=True) if mark]
    rows = PaddedBatch.of([ReplySpans((*prompt, *ids), ((len(prompt), len(ids)),), (0.0,) * len(ids))], [0], CPU)
    with torch.no_grad():
        return float(Actor.load(folder, CPU)(rows.ids, rows.actions).logprobs.sum())
