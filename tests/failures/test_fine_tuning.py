"""Tests that fine-tuning which is killed and continued ends with exactly the same weights."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from random import Random

import pytest
import torch

from kernel_assistant.errors import InternalError
from kernel_assistant.session.training_run import RunState, read_status
from kernel_assistant_training.conversation import Encoder
from kernel_assistant_training.encoded import drawn
from kernel_assistant_training.folder import load_folder
from kernel_assistant_training.stages.trainer_checkpoints import TrainerCheckpoints
from kernel_assistant_training.tokenizer import load
from tests.failures.stages import Started, command, with_small_files

pytestmark = [pytest.mark.lost, pytest.mark.usefixtures("own_templates")]

pytest.importorskip("accelerate", reason="accelerate is not installed: pip install 'kernel-assistant[train]'")
STEPS = 60


@pytest.fixture
def words(base, episodes):
    def words(out, **changed):
        known = {"base": base, "episodes": episodes, "trainer": "transformers", "pairs-share": 0, "batch": 1}
        known |= {"steps": STEPS, "rate": 1e-3, "checkpoint-seconds": 0, "out": out, **changed}
        return ["sft", *(word for name, value in known.items() for word in (f"--{name}", str(value)))]

    return words


def step_of(run):
    """The step of the newest complete checkpoint; the other checkpoints are not touched."""
    done = [int(path.parent.name.partition("-")[2]) for path in run.glob("checkpoint-*/trainer_state.json")]
    return max(done, default=0)


def reached(run, step):
    return step_of(run) >= step


@pytest.mark.slow
def test_it_comes_to_the_same_weights_however_often_it_is_killed(words, tmp_path):
    whole, run, random = tmp_path / "whole", tmp_path / "run", Random(20)
    reference = Started(tmp_path / "log", command, words(whole, **{"checkpoint-seconds": 1000}))
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGINT):
        wanted = step_of(run) + random.randint(2, 9)
        stage = Started(tmp_path / f"{number.name} {wanted}", command, words(run))
        stage.when(partial(reached, run, wanted), random.uniform(0, 0.03)).killed(number, run, "sft")
        assert wanted <= step_of(run) < STEPS, "each step has its checkpoint"
        assert number is signal.SIGKILL or read_status(run).step == step_of(run)
    last = Started(tmp_path / "last", command, words(run))
    assert (last.wait(), reference.wait()) == (0, 0), last.said + reference.said
    one, other = (load_folder(folder).state_dict() for folder in (whole, run))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not list(run.glob("checkpoint-*")) and read_status(run).state is RunState.ended

    # What has ended is not trained again; another run's folder is refused.
    again = Started(tmp_path / "again", command, words(run))
    assert again.wait() == 0 and json.loads(again.said.splitlines()[-1])["steps"] == STEPS
    other = Started(tmp_path / "other", command, words(run, rate=2e-3))
    assert other.wait() == 2 and "rate 0.001, not 0.002" in other.said


def test_half_a_checkpoint_is_none(tmp_path):
    for step, state in ((3, '{"log_history": [{"trained_seconds": 1.5, "step": 3}]}'), (4, '{"log_hi'), (5, None)):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        if state is not None:
            (folder / "trainer_state.json").write_text(state)
    found = TrainerCheckpoints(tmp_path)
    assert (found.latest(), found.seconds()) == (tmp_path / "checkpoint-3", 1.5)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-3"]


def test_a_full_disk_leaves_the_checkpoint_before(words, tmp_path):
    run = tmp_path / "run"
    Started(tmp_path / "log", command, words(run)).when(partial(reached, run, 2)).end(signal.SIGTERM)
    before = step_of(run)
    full = Started(tmp_path / "full", with_small_files, 100_000, command, words(run))
    assert full.wait() == 4 and "Traceback" not in full.said, full.said
    cause, next_step = full.said.splitlines()[-2:]
    assert "a checkpoint could not be written" in cause and f"the last checkpoint is {run}/checkpoint-{before}" in cause
    assert next_step == "make room, and start it again"
    assert [path.name for path in run.glob("checkpoint-*")] == [f"checkpoint-{before}"]
    assert read_status(run).state is RunState.failed and "could not be written" in read_status(run).message


def test_what_is_not_finite_is_in_no_checkpoint(words, poisoned, tmp_path):
    run = tmp_path / "run"
    stage = Started(tmp_path / "log", command, words(run, base=poisoned))
    assert stage.wait() == 4 and "Traceback" not in stage.said
    assert "weights are not finite" in stage.said and "there is no checkpoint yet" in stage.said
    assert not list(run.glob("checkpoint-*")) and not (run / "config.json").exists()


def dies(seed):
    os.kill(os.getpid(), signal.SIGKILL)
    yield []


def test_a_process_that_makes_tokens_and_dies_is_told():
    assert Encoder(load()).encode([]).ids == []
    with pytest.raises(InternalError, match="turns conversations into tokens died"):
        drawn(dies, 0, 8, processes=2)
