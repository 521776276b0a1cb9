"""A run as its watchers see it, and their commands to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from kernel_assistant.session.training_run import (
    CONTROL,
    STATUS,
    RunState,
    TrainingCommand,
    ask,
    command_of,
    read_status,
)
from kernel_assistant_training import run_control
from kernel_assistant_training.interrupts import Interrupted
from kernel_assistant_training.run_control import RunControl


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch):
    monkeypatch.setattr(run_control, "LOOK_EVERY_S", 0.0)


def state_of(run):
    status = read_status(run)
    assert status is not None
    return status.state, status.step, status.message


def test_reports_and_the_end(tmp_path):
    with RunControl(tmp_path, "sft") as run:
        assert state_of(tmp_path) == (RunState.running, 0, "")
        run.report(10, {"loss": 0.5})
        assert run.goes_on(11)
    assert state_of(tmp_path) == (RunState.ended, 11, "")


def test_a_pause_lasts_until_somebody_lets_it_go_on(tmp_path):
    seen = []

    def sleep(seconds):
        seen.append(state_of(tmp_path)[0])
        if len(seen) == 3:
            ask(tmp_path, TrainingCommand.go_on)

    with RunControl(tmp_path, "ppo") as run:
        ask(tmp_path, TrainingCommand.pause)
        assert run.goes_on(5, sleep)
        assert seen == [RunState.paused] * 3 and run.paused_s > 0
        assert state_of(tmp_path)[0] is RunState.running


def test_a_stop_also_ends_a_pause(tmp_path):
    with RunControl(tmp_path, "ppo") as run:
        ask(tmp_path, TrainingCommand.pause)
        assert not run.goes_on(5, lambda seconds: ask(tmp_path, TrainingCommand.stop))
        assert not run.goes_on(6)
    assert state_of(tmp_path) == (RunState.stopped, 6, "")
    assert not (tmp_path / CONTROL).exists()


def test_what_was_asked_of_an_earlier_run_does_not_count(tmp_path):
    ask(tmp_path, TrainingCommand.stop)
    with RunControl(tmp_path, "ppo") as run:
        assert run.goes_on(1)


@pytest.mark.parametrize(
    ("error", "state", "message"),
    [
        (ValueError("loss is not finite\nand more"), RunState.failed, "ValueError: loss is not finite"),
        (KeyboardInterrupt(), RunState.stopped, "interrupted"),
    ],
    ids=["breaks", "interrupt"],
)
def test_a_run_that_breaks_says_why_and_an_interrupt_is_a_stop(tmp_path, error, state, message):
    def train():
        with RunControl(tmp_path, "ppo") as run:
            run.report(3, {})
            raise error

    with pytest.raises(type(error)) as raised:
        train()
    assert raised.value is error and state_of(tmp_path) == (state, 3, message)


def test_a_run_whose_process_is_gone_has_died(tmp_path):
    code = (
        "import sys, pathlib; from kernel_assistant.session.training_run import *;"
        "write_status(pathlib.Path(sys.argv[1]), 'ppo', RunState.running, 7)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert state_of(tmp_path) == (RunState.died, 7, "")


def test_files_that_cannot_be_read_are_no_status_and_no_command(tmp_path):
    (tmp_path / STATUS).write_text("{")
    (tmp_path / CONTROL).write_text("dance")
    assert read_status(tmp_path) is None
    assert command_of(tmp_path) is TrainingCommand.go_on


def test_a_signal_lets_the_step_end_and_a_second_or_a_minute_does_not(tmp_path, monkeypatch):
    monkeypatch.setattr(run_control, "GRACE_S", 1)
    monkeypatch.setattr(run_control, "SAME_S", 0.0)
    done = []

    def train(*, signals=1, waits=0.0, at_once=False):
        done.clear()
        with RunControl(tmp_path, "sft", at_once=at_once) as run:
            for _ in range(signals):
                os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(waits)
            done.append(run.goes_on(7))

    for changed, ended in (({}, [False]), ({"signals": 2}, []), ({"waits": 30.0}, []), ({"at_once": True}, [])):
        with pytest.raises(Interrupted, match="SIGTERM") as raised:
            train(**changed)
        assert (raised.value.exit_code, done) == (143, ended)
        assert state_of(tmp_path)[::2] == (RunState.stopped, "interrupted")
