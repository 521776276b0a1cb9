"""Evaluates checkpoints on held-out tasks: tests which attempts count, which results are reused, and the options."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest
import torch

from kernel_assistant.errors import UsageError
from kernel_assistant.records import Outcome, Tier
from kernel_assistant.session.training_run import RunState, read_status
from kernel_assistant_training.__main__ import main
from kernel_assistant_training.folder import load_folder
from kernel_assistant_training.options.checkpoints import chosen
from kernel_assistant_training.options.command_line import parse
from kernel_assistant_training.options.stages import EvalArguments
from kernel_assistant_training.ppo.evaluating import figures_of
from kernel_assistant_training.ppo.model.actor import Actor
from kernel_assistant_training.ppo.rewards import reward
from kernel_assistant_training.ppo.rollouts import figures_of as figures_of_episodes
from kernel_assistant_training.ppo.run_folder import PpoRunFolder, PpoState
from kernel_assistant_training.ppo.sources import MixedSource, SourceOptions
from kernel_assistant_training.ppo.stage import run
from kernel_assistant_training.ppo.trajectory import ReplySpans, Trajectory
from kernel_assistant_training.stages import evaluate
from kernel_assistant_training.synth.split import split
from tests.ppo.test_rewards import judged


def attempt(key, found, seed=0, scheme="milestone", **fields):
    fields = {"target": "cpu", "iteration": 1, "stop": "turns", **fields}
    said = ReplySpans((1, 2), ((1, 1),), (0.0,))
    return Trajectory.of(said, key=key, seed=seed, reward=reward(found, scheme), **fields)


def test_rates_are_of_tasks_and_the_best_attempt_is_the_most_rewarded():
    wrong, right = judged(Outcome.incorrect), judged(tier=Tier.quick)
    first = [attempt("a", wrong), attempt("b", right), attempt("c", wrong), attempt("d", wrong, void=True)]
    more = [attempt("a", judged(eager=1.5, compiled=1.2), 1), attempt("a", judged(eager=9.0, compiled=0.5), 2)]
    more += [attempt("b", judged(eager=1.2, compiled=1.0), 1), attempt("b", wrong, 2)]
    more += [attempt("c", wrong, 1), attempt("c", wrong, 2)]
    found = figures_of(first, more)
    assert (found["tasks"], found["void"]) == (3, 1)
    assert found["pass_rate"] == pytest.approx(1 / 3) and found["best_pass_rate"] == pytest.approx(2 / 3)
    assert found["sampled_pass_rate"] == pytest.approx(3 / 6)
    # Of a the attempt that beats torch.compile is the best, not the one that is nine times as fast as eager.
    assert found["faster_eager_rate"] == pytest.approx(2 / 3) and found["faster_compile_rate"] == pytest.approx(1 / 3)
    assert found["reward"] == pytest.approx((-1 + 1 - 1) / 3) and found["best_reward"] == pytest.approx((3 + 2 - 1) / 3)
    alone = figures_of(first, [])
    assert alone["best_pass_rate"] == alone["pass_rate"] and alone["sampled_pass_rate"] is None


def test_what_was_not_measured_is_no_share_of_nothing():
    right = judged(tier=Tier.quick)
    unmeasured = [attempt("a", right, scheme="correctness")]
    assert figures_of(unmeasured, [])["faster_compile_rate"] is None
    assert "faster_compile_rate" not in figures_of_episodes(unmeasured)
    assert "faster_compile_rate" not in figures_of_episodes([attempt("a", right)])
    assert figures_of_episodes([attempt("a", judged(eager=0.9))])["faster_compile_rate"] == 0.0


def test_checkpoints_are_named_as_they_are_there(tmp_path):
    for number in (0, 5, 12):
        (tmp_path / "07-ppo" / f"checkpoint-{number:06}").mkdir(parents=True)
    (tmp_path / "07-ppo" / "checkpoint-000013.partial").mkdir()
    run = tmp_path / "07-ppo"
    assert list(chosen(run, "all")) == [0, 5, 12]
    assert chosen(run, "newest") == {12: run / "checkpoint-000012"} and list(chosen(run, "first")) == [0]
    assert list(chosen(run, "5")) == [5]
    with pytest.raises(UsageError, match="has no checkpoint 7") as error:
        chosen(run, "7")
    assert "0, 5, 12" in error.value.next_step
    with pytest.raises(UsageError, match="has no checkpoints") as error:
        chosen(tmp_path, "newest")
    assert "07-ppo" in error.value.next_step


def asked(*words):
    return parse(EvalArguments, "eval", [str(word) for word in words])


@pytest.mark.learns
def test_a_checkpoint_is_exported_as_transformers_loads_it_and_as_the_product_ships_it(coin, tmp_path):
    folder = PpoRunFolder(tmp_path / "run", {})
    for number in range(3):
        folder.save(Actor.load(coin.folder, torch.device("cpu")), coin.folder, PpoState(iteration=number))
    out = tmp_path / "exported"
    assert main(["export", "--run", str(folder.path), "--checkpoint", "1", str(out)]) == 0
    weights, known = (load_folder(one).state_dict() for one in (out / "model", folder.path / "checkpoint-000001"))
    assert all(bool((weights[name] == known[name]).all()) for name in known) and weights.keys() == known.keys()
    assert sorted(path.name for path in out.iterdir()) == ["kernel-assistant.gguf", "model"]
    assert not (out / "model" / "value").exists() and not (out / "model" / "state.json").exists()
    assert main(["export", "--run", str(folder.path), str(folder.path), str(out)]) == 2


def test_a_run_is_evaluated_on_its_own_sources_of_tasks(tmp_path):
    run = tmp_path / "run"
    (run / "checkpoint-000000").mkdir(parents=True)
    sources = {"synthesis": 0.0, "traced": 1.0, "shards": [], "only": [], "level": 5}
    (run / "run.json").write_text(json.dumps({"sources": sources}), encoding="utf-8")
    own = evaluate.options_of(asked("--run", run)).sources
    named = evaluate.options_of(asked("--run", run, "--synthesis", 0.5)).sources
    assert (own.synthesis, own.traced) == (0.0, 1.0) and (named.synthesis, named.traced) == (0.5, 0.0)


@pytest.mark.learns
@pytest.mark.slow
def test_a_checkpoint_is_evaluated_once_on_tasks_that_training_never_plays(options, coin):
    play = replace(options.play, reply=60)
    options = replace(options, episodes=2, play=play)
    run(options, [coin.task], torch.device("cpu"))
    (one,) = evaluate.run(asked("--run", options.out, "--tasks", 2, "--attempts", 2, "--checkpoint", 0), coin.cache)
    # Turns, reward and sizes are those of the run.
    assert (one.checkpoint, one.target, one.scheme, one.tasks, one.attempts) == (0, "cpu", "correctness", 2, 2)
    assert evaluate.options_of(asked("--run", options.out)).play == play
    (greedy,) = (options.out / "held_out").glob("model-000000-*/trajectories-000001.jsonl")
    before = greedy.read_bytes()
    # More attempts play what is missing alone: the greedy ones stay as they are.
    everything = asked("--run", options.out, "--tasks", 2, "--attempts", 3, "--checkpoint", "all")
    found = evaluate.run(everything, coin.cache)
    assert [(each.checkpoint, each.attempts) for each in found] == [(0, 3), (1, 3)] and greedy.read_bytes() == before
    aside = MixedSource("cpu", SourceOptions()).tasks(2, Random("evaluation 0"), wanted="held_out")
    assert {split(task.canonical) for task in aside} == {"held_out"}
    keys = sorted(json.loads(line)["key"] for line in before.splitlines())
    assert keys == sorted(task.key for task in aside)
    lines = options.out / "evaluations_held_out.jsonl"
    said = lines.read_bytes()
    rows = map(json.loads, said.splitlines())
    assert [(row["checkpoint"], row["attempts"]) for row in rows] == [(0, 2), (0, 3), (1, 3)]
    assert evaluate.run(everything, coin.cache) == found and lines.read_bytes() == said
    assert read_status(options.out / "held_out").state is RunState.ended


def test_it_must_be_clear_which_models(tmp_path):
    for words in ([], ["--run", tmp_path, "--base", tmp_path], ["--base", tmp_path]):
        with pytest.raises(UsageError, match="which models"):
            evaluate.run(asked(*words))
    given = asked("--base", tmp_path, tmp_path, "--out", tmp_path / "out", "--target", "cpu", "--turns", 4)
    options = evaluate.options_of(given)
    assert dict(options.models) == {0: tmp_path, 1: tmp_path} and options.out == tmp_path / "out"
    assert (options.play.turns, options.play.scheme, options.target) == (4, "milestone", "cpu")
