"""Checkpoints on held-out tasks: what counts, what is kept, and what a person can ask for."""

from __future__ import annotations

import json
import shutil
from random import Random

import pytest
import torch

from kernel_assistant.errors import UsageError
from kernel_assistant.records import Outcome, Tier
from kernel_assistant_training import evaluate
from kernel_assistant_training.__main__ import main
from kernel_assistant_training.ppo.checkpoints import chosen
from kernel_assistant_training.ppo.evaluating import figures_of
from kernel_assistant_training.ppo.play import PlayOptions
from kernel_assistant_training.ppo.rewards import reward
from kernel_assistant_training.ppo.sources import SourceOptions, Sources
from kernel_assistant_training.ppo.stage import StageOptions, run
from kernel_assistant_training.ppo.trajectory import Said, Trajectory
from kernel_assistant_training.ppo.update import UpdateOptions
from kernel_assistant_training.synth.split import split
from tests.ppo.test_rewards import judged


def attempt(key, found, seed=0, **fields):
    fields = {"target": "cpu", "iteration": 1, "stop": "turns", **fields}
    return Trajectory.of(
        Said((1, 2), ((1, 1),), (0.0,)), key=key, seed=seed, reward=reward(found, "milestone"), **fields
    )


def test_rates_are_of_tasks_and_the_best_attempt_is_the_most_rewarded():
    wrong, right = judged(Outcome.incorrect), judged(tier=Tier.quick)
    first = [attempt("a", wrong), attempt("b", right), attempt("c", wrong), attempt("d", wrong, void=True)]
    more = [
        attempt("a", judged(eager=1.5, compiled=1.2), 1),
        attempt("a", judged(eager=9.0, compiled=0.5), 2),
        attempt("b", judged(eager=1.2, compiled=1.0), 1),
        attempt("b", wrong, 2),
        attempt("c", wrong, 1),
        attempt("c", wrong, 2),
    ]
    found = figures_of(first, more)
    assert (found["tasks"], found["void"]) == (3, 1)
    assert found["pass_rate"] == pytest.approx(1 / 3) and found["best_pass_rate"] == pytest.approx(2 / 3)
    assert found["sampled_pass_rate"] == pytest.approx(3 / 6)
    # Of a the attempt that beats torch.compile is the best, not the one that is nine times as fast as eager.
    assert found["faster_eager_rate"] == pytest.approx(2 / 3) and found["faster_compile_rate"] == pytest.approx(1 / 3)
    assert found["reward"] == pytest.approx((-1 + 1 - 1) / 3) and found["best_reward"] == pytest.approx((3 + 2 - 1) / 3)
    alone = figures_of(first, [])
    assert alone["best_pass_rate"] == alone["pass_rate"] and alone["sampled_pass_rate"] is None


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
    return evaluate.parser().parse_args([str(word) for word in words])


@pytest.mark.slow
def test_every_checkpoint_is_evaluated_once_on_tasks_that_training_never_plays(coin, tmp_path, capsys):
    play = PlayOptions(scheme="correctness", turns=1, reply=60, context=512)
    options = StageOptions(
        stage="ppo_single",
        base=coin.folder,
        out=tmp_path / "run",
        target="cpu",
        iterations=2,
        episodes=2,
        keep_every=1,
        cache=coin.cache,
        play=play,
        update=UpdateOptions(rate=2e-4, head_rate=2e-4, steps=1, warmup=1, lam=1.0),
    )
    run(options, [coin.task], torch.device("cpu"))
    words = ["--run", options.out, "--tasks", 2, "--attempts", 2]
    (one,) = evaluate.run(asked(*words, "--checkpoint", 0), coin.cache)
    # Turns, reward and sizes are those of the run.
    assert (one.checkpoint, one.target, one.scheme, one.tasks, one.attempts) == (0, "cpu", "correctness", 2, 2)
    assert evaluate.options_of(asked(*words)).play == play
    found = evaluate.run(asked(*words, "--checkpoint", "all"), coin.cache)
    assert [each.checkpoint for each in found] == [0, 1, 2] and found[0] == one
    lines = (options.out / "evaluations_held_out.jsonl").read_text().splitlines()
    assert [json.loads(line)["checkpoint"] for line in lines] == [0, 1, 2]
    aside = Sources("cpu", SourceOptions()).tasks(2, Random("evaluation 0"), wanted="held_out")
    assert {split(task.canonical) for task in aside} == {"held_out"}
    played = sorted((options.out / "held_out").glob("model-000002-*/*.jsonl"))
    keys = [[json.loads(line)["key"] for line in path.read_text().splitlines()] for path in played]
    assert [sorted(some) for some in keys] == [sorted(task.key for task in aside)] * 2
    # More attempts play what is missing alone: the greedy ones stay as they are.
    before = played[0].read_bytes()
    (more,) = evaluate.run(asked("--run", options.out, "--tasks", 2, "--attempts", 3), coin.cache)
    assert (more.checkpoint, more.attempts) == (2, 3) and played[0].read_bytes() == before
    assert len(played[1].read_text().splitlines()) == 4
    assert main(["plot", str(options.out)]) == 0
    assert (options.out / "plots" / "evaluations.png").is_file()
    # A folder of a model is as good as a run.
    shutil.copytree(coin.cache / "devices", tmp_path / "models" / "devices")
    model = ["--base", options.out / "checkpoint-000002", "--out", tmp_path / "models", "--target", "cpu"]
    model += ["--reward", "correctness", "--reply", 5, "--context", 512, "--tasks", 1, "--attempts", 1]
    assert main(["eval", *(str(word) for word in model)]) == 0
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (line["tasks"], line["pass_rate"], line["sampled_pass_rate"]) == (1, 0.0, None)
    with pytest.raises(UsageError, match="which models"):
        evaluate.run(asked("--run", options.out, "--base", options.out))
