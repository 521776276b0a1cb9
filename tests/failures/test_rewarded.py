"""Tests reinforcement learning that is killed: no episode is lost or played twice, no candidate is judged twice."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from random import Random

import pytest
import torch

from kernel_assistant_training.endings import ended
from kernel_assistant_training.folder import load_folder
from kernel_assistant_training.ppo.play import PlayOptions
from kernel_assistant_training.ppo.stage import StageOptions
from kernel_assistant_training.ppo.stage import run as run_stage
from kernel_assistant_training.ppo.store import TrajectoryStore
from kernel_assistant_training.ppo.updates.kl import KlControl
from kernel_assistant_training.ppo.updates.update import UpdateOptions
from tests.failures.stages import Started, command
from tests.ppo.conftest import cache, coin  # noqa: F401 - fixtures
from tests.ppo.trajectories import trajectory

pytestmark = [pytest.mark.lost, pytest.mark.usefixtures("own_templates")]

EPISODES, ITERATIONS = 6, 3


@pytest.fixture
def options(coin, tmp_path):  # noqa: F811
    return StageOptions(
        stage="ppo_single",
        base=coin.folder,
        out=tmp_path / "run",
        target="cpu",
        iterations=ITERATIONS,
        episodes=EPISODES,
        rows=EPISODES,
        cache=coin.cache,
        play=PlayOptions(scheme="correctness", turns=1, reply=130, context=512),
        update=UpdateOptions(rate=2e-4, head_rate=2e-4, steps=1, warmup=1, lam=1.0),
        kl=KlControl(0.01),
    )


def ppo(options, task):
    return ended("ppo-single", partial(run_stage, options, [task], torch.device("cpu")))


def played(run):
    return sum(path.read_bytes().count(b"\n") for path in run.glob("trajectories-*.jsonl"))


@pytest.mark.slow
def test_ppo_goes_on_with_the_episodes_that_are_missing(options, coin, tmp_path):  # noqa: F811
    run, random, task = options.out, Random(3), coin.task
    first = Started(tmp_path / "killed", ppo, options, task)
    first.when(lambda: played(run) >= EPISODES, random.uniform(0, 0.5)).killed(signal.SIGKILL, run, "ppo-single")
    before, at = [one.read_bytes() for one in sorted(run.glob("trajectories-*"))], played(run)
    second = Started(tmp_path / "ended", ppo, options, task)
    second.when(lambda: played(run) > at, random.uniform(0, 0.2)).killed(signal.SIGTERM, run, "ppo-single")
    assert second.said.splitlines()[-1].startswith("ppo-single was ended by SIGTERM")
    last, later = Started(tmp_path / "last", ppo, options, task), played(run)
    last.when(lambda: played(run) > later, random.uniform(0, 0.05))
    os.kill(last.below("worker/boot.py")[0].pid, signal.SIGKILL)
    assert last.wait() == 0, last.said
    load_folder(run / f"checkpoint-{ITERATIONS:06}")
    after = [one.read_bytes() for one in sorted(run.glob("trajectories-*"))]
    assert all(then.startswith(known) for known, then in zip(before, after, strict=False))
    found = list(TrajectoryStore(run).all())
    wanted = [(iteration, seed) for iteration in range(1, ITERATIONS + 1) for seed in range(EPISODES)]
    assert sorted((one.iteration, one.seed) for one in found) == wanted
    lines = (run / "evaluations.jsonl").read_text().splitlines()
    known = [json.loads(line)["evaluation"]["candidate"] for line in lines]
    assert len(set(known)) == len(known)
    assert set(known) == {one for each in found if not each.void for one in each.candidates}
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert sorted(set(steps)) == list(range(ITERATIONS + 1)) and steps == sorted(steps)


@pytest.fixture
def trajectories(tmp_path):
    """Right trajectories of ten tasks, and wrong ones."""
    store, random = TrajectoryStore(tmp_path / "played"), Random(1)
    for number in range(40):
        ids, value = [random.randrange(5, 200) for _ in range(30)], 1.0 if number % 2 else -1.0
        right = {"calls": ("evaluate", "finish"), "candidates": ("c",), "outcomes": ("correct",)}
        store.add(trajectory(ids, [(8, 10), (22, 8)], value, key=f"task {number % 10}", seed=number, **right))
    store.close()
    return tmp_path / "played"


def words(stage, run, base, trajectories, **changed):
    known = {"base": base, "out": run, "trajectories": trajectories, **changed}
    return [stage, *(word for name, value in known.items() for word in (f"--{name}", str(value)))]


def checkpoints(folder):
    return sorted(int(path.name.rpartition("-")[2]) for path in folder.glob("checkpoint-*") if path.suffix == "")


def newest(folder, step):
    return bool(checkpoints(folder)) and checkpoints(folder)[-1] >= step


@pytest.mark.slow
def test_rejection_fine_tuning_goes_on_in_the_middle_of_it(base, trajectories, tmp_path):
    run = tmp_path / "rft"
    changed = {"trainer": "transformers", "max-steps": 40, "batch": 2, "checkpoint-seconds": 0, "target": "cpu"}
    asked = words("rft", run, base, trajectories, **changed)
    for number in (signal.SIGKILL, signal.SIGTERM):
        at = max(checkpoints(run / "model.partial"), default=0)
        stage = Started(tmp_path / number.name, command, asked)
        code = stage.when(partial(newest, run / "model.partial", at + 3)).end(number)
        assert code == (-number if number is signal.SIGKILL else 143), stage.said
        assert "Traceback" not in stage.said and not (run / "model").exists()
    for log in ("last", "again"):
        stage = Started(tmp_path / log, command, asked)
        assert stage.wait() == 0, stage.said
        assert json.loads(stage.said.splitlines()[-1])["steps"] == 40
    load_folder(run / "model")
    assert not (run / "model.partial").exists() and not list((run / "model").glob("checkpoint-*"))
