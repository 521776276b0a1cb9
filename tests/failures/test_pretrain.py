"""Tests pre-training that is killed, ended, without rows, with weights that are not finite, and without disk space."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest
import torch

from kernel_assistant.errors import StoreError
from kernel_assistant.session.training_run import RunState, read_status
from kernel_assistant_training.endings import ended
from kernel_assistant_training.saving import written
from kernel_assistant_training.stages.pretrain import PretrainOptions, train
from tests.failures.stages import NO_MOUNTS, Started, on_a_small_disk

pytestmark = [pytest.mark.lost, pytest.mark.usefixtures("own_templates")]

STEPS = 100


@pytest.fixture
def options(tmp_path, monkeypatch, base):
    """The conversations come from a module that a new process can import."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "training"))
    import conversations

    numbers = {"seconds": 1000, "steps": STEPS, "rows": 1, "length": 128, "processes": 2, "keep": 64, "rate": 1e-3}
    known = {"held_out": 0, "checkpoint_seconds": 0.0, "resume": True, "sources": (conversations.sums,)}
    return PretrainOptions(out=tmp_path / "run", base=base, **numbers, **known)


def pretrain(options):
    return ended("pretrain", partial(train, options))


def step_of(run):
    file = run / "checkpoint.pt"
    return torch.load(file, weights_only=True)["progress"]["step"] if file.is_file() else 0


def reached(run, step):
    return step_of(run) >= step


@pytest.mark.slow
def test_a_kill_costs_the_step_it_was_at(options, tmp_path):
    run, random = options.out, Random(7)
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        wanted = step_of(run) + random.randint(2, 12)
        stage = Started(tmp_path / number.name, pretrain, options)
        stage.when(partial(reached, run, wanted), random.uniform(0, 0.05)).killed(number, run, "pretrain")
        assert wanted <= step_of(run) < STEPS
        assert number is signal.SIGKILL or read_status(run).step == step_of(run)
    # Each start begins where the checkpoint was, with other conversations, and half a line spoils nothing.
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b'{"stage": "pretrain", "st')
    before = torch.load(run / "checkpoint.pt", weights_only=True)["progress"]
    assert Started(tmp_path / "last", pretrain, options).wait() == 0
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    first = next(line for line in lines if line.get("runs") == before["runs"] + 1)
    assert before["step"] < first["step"] <= before["step"] + 50 and first["seconds"] > before["seconds"]
    assert before["runs"] == 2 and step_of(run) == STEPS and (run / "model" / "config.json").is_file()


def test_writers_that_die_are_done_without_and_the_last_one_ends_it_with_a_checkpoint(options, tmp_path):
    run = options.out
    options = replace(options, checkpoint_seconds=1000, steps=100_000)
    stage = Started(tmp_path / "log", pretrain, options).when((run / "metrics.jsonl").is_file)
    one, other = stage.below("spawn_main")[:2]
    os.kill(one.pid, signal.SIGKILL)
    stage.when(partial(counted, run))
    os.kill(other.pid, signal.SIGKILL)
    assert stage.wait() == 4 and "Traceback" not in stage.said
    cause, _ = stage.said.splitlines()[-2:]
    assert cause == f"all processes that make conversations have ended; the last checkpoint is {run}/checkpoint.pt"
    assert step_of(run) >= 1 and read_status(run).message.endswith(cause)


def counted(run):
    lines = (run / "metrics.jsonl").read_bytes().splitlines()
    return any(b'"ended_processes": 1' in line for line in lines)


def test_a_full_disk_leaves_the_checkpoint_before(options, tmp_path):
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    options = replace(options, out=disk / "run")
    stage = Started(tmp_path / "full", on_a_small_disk, 8_000_000, disk, kept, pretrain, options)
    if stage.wait() == NO_MOUNTS:
        pytest.skip("nothing can be mounted here")
    assert stage.wait() == 4 and "Traceback" not in stage.said, stage.said
    cause, next_step = stage.said.splitlines()[-2:]
    file = options.out / "checkpoint.pt"
    assert cause == f"{file} could not be written: there is no room for it; the last checkpoint is {file}"
    assert next_step == "make room, and start it again"
    run = kept / "run"
    # The file that did not fit is gone and closed, else there would be no room to say so.
    assert read_status(run).state is RunState.failed and cause in read_status(run).message
    assert step_of(run) >= 1 and not (run / "checkpoint.new").exists()


def test_a_folder_that_goes_away_is_named(tmp_path):
    file = tmp_path / "run" / "model.pt"
    with pytest.raises(StoreError) as failure, written(file):
        torch.save({}, file)
    assert failure.value.next_step == f"see that {file.parent} is there and can be written to, and start it again"


def test_what_is_not_finite_is_in_no_checkpoint(options, poisoned, tmp_path):
    stage = Started(tmp_path / "log", pretrain, replace(options, base=poisoned))
    assert stage.wait() == 4 and "Traceback" not in stage.said
    assert "gradient_norm not finite; there is no checkpoint yet" in stage.said
    assert not (options.out / "checkpoint.pt").exists() and not (options.out / "model").exists()
