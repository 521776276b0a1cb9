"""Training runs: files that grow, and a loop that is paused and stopped from the terminal."""

from __future__ import annotations

import os
import threading
import time

import pytest

from kernel_assistant.session.training_run import (
    CONTROL,
    METRICS,
    RunState,
    TrainingCommand,
    ask,
    command_of,
    read_status,
    write_status,
)
from kernel_assistant.session.training_stages import FIRST, is_share
from kernel_assistant_training import run_control
from kernel_assistant_training.run_control import RunControl
from kernel_assistant_tui.runs.find import newest_runs
from kernel_assistant_tui.runs.metrics import MetricsTail, Stage, thinned
from kernel_assistant_tui.widgets.curves import curve_lines
from kernel_assistant_tui.widgets.training import EMPTY, NO_STATUS, Training
from tests.tui.parts.hosting import hosted, press, until
from tests.tui.recorded_run import report

SIZE = (100, 40)


def test_a_file_is_read_as_it_grows(tmp_path):
    tail = MetricsTail(tmp_path)
    with pytest.raises(FileNotFoundError):
        tail.read()
    report(tmp_path, 1, loss=3.0, note="text", big=float("inf"), flag=True)
    assert tail.read() and not tail.read()
    with (tmp_path / METRICS).open("a") as file:
        file.write('{"stage": "ppo", "step": 2, "ti')
    assert not tail.read()
    with (tmp_path / METRICS).open("a") as file:
        file.write(
            'me": 5.0, "loss": 2.0, "other": 1}\nno json\n[1]\n{"step": 3}\n{"stage": "x", "step": "y", "time": 1}\n'
        )
    assert tail.read()
    assert tail.stages["ppo"].curves == {"loss": {1.0: 3.0, 2.0: 2.0}, "other": {2.0: 1.0}}
    assert (tail.stages["ppo"].step, tail.stages["ppo"].time, tail.bad_lines) == (2.0, 5.0, 4)


def test_a_step_that_is_done_again_counts_as_it_was_last(tmp_path):
    for loss in (1.0, 2.0):
        report(tmp_path, 7, loss=loss)
    tail = MetricsTail(tmp_path)
    tail.read()
    assert tail.stages["ppo"].curves["loss"] == {7.0: 2.0}


def test_a_file_that_became_shorter_is_read_anew(tmp_path):
    for step in range(10):
        report(tmp_path, step, loss=1.0)
    tail = MetricsTail(tmp_path)
    tail.read()
    (tmp_path / METRICS).unlink()
    report(tmp_path, 0, stage="sft", loss=5.0)
    assert tail.read() and list(tail.stages) == ["sft"]


def test_known_figures_come_first():
    stage = Stage("ppo", {name: {0.0: 1.0} for name in ("zeal", "entropy", "loss", "apples")})
    assert stage.names() == ["loss", "entropy", "zeal", "apples"]
    assert len(set(FIRST)) == len(FIRST)
    lines = [line.plain.rstrip() for line in curve_lines(stage, 50)]
    assert [line for line in lines if line] == ["loss  1", "entropy  1", "zeal  1", "apples  1"]


def test_runs_are_found_newest_first(tmp_path):
    project, kept = tmp_path / "project", tmp_path / "state"
    for age, folder in enumerate((project / "a", kept / "b", project / "deep" / "er" / "c", project / ".venv" / "d")):
        folder.mkdir(parents=True)
        report(folder, 1)
        os.utime(folder / METRICS, (1000 - age, 1000 - age))
    (project / "model.py").write_text("")
    found = [run.path for run in newest_runs(project / "model.py", kept)]
    assert found == [project / "a", kept / "b", project / "deep" / "er" / "c"]
    assert [run.path for run in newest_runs(kept, kept, tmp_path / "nowhere" / "x")] == [kept / "b"]


def test_shares_are_shown_per_cent():
    names = ("pass_rate", "clipped_share", "learning_rate", "rate", "reward")
    assert [name for name in names if is_share(name)] == ["pass_rate", "clipped_share"]


def test_thinning_keeps_ends_and_extremes():
    points = [(float(n), 0.0) for n in range(10_000)]
    points[1234], points[7777] = (1234.0, 9.0), (7777.0, -9.0)
    kept = thinned(points, 200)
    assert len(kept) <= 210 and kept == sorted(kept)
    assert kept[0] == points[0] and kept[-1] == points[-1] and {(1234.0, 9.0), (7777.0, -9.0)} <= set(kept)
    assert thinned(points[:5], 200) == points[:5]


@pytest.mark.asyncio
async def test_without_a_run_and_without_a_status_it_says_so(tmp_path):
    async with hosted(Training(), SIZE) as (app, pilot):
        assert EMPTY.split(".")[0] in app.shown
        app.widget.focus()
        await pilot.press("z", "j", "t")
        app.widget.open(tmp_path)
        await until(pilot, lambda: "cannot be read" in " ".join(app.shown.split()))  # the path may be long
        report(tmp_path, 1, loss=2.5)
        await until(pilot, "loss  2.5")
        assert NO_STATUS in app.shown
        await pilot.press("z", "j", "j")
        assert command_of(tmp_path) is TrainingCommand.go_on and not (tmp_path / CONTROL).exists()
        assert app.notes == ["no run is going on here"] * 2 + [NO_STATUS] * 3


@pytest.mark.asyncio
async def test_a_loop_is_paused_goes_on_and_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(run_control, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr("kernel_assistant_tui.widgets.training.EVERY_S", 0.05)
    # A pane shows where its run lies, and this test's own folder has "paused" in its name.
    run_folder, steps = tmp_path / "run", []
    run_folder.mkdir()

    def train():
        with RunControl(run_folder, "ppo_single") as run:
            while run.goes_on(len(steps)):
                steps.append(1)
                run.report(len(steps), {"reward": len(steps) / 1000})
                time.sleep(0.01)

    def state():
        status = read_status(run_folder)
        return status and status.state

    loop = threading.Thread(target=train)
    loop.start()
    try:
        async with hosted(Training(), SIZE) as (app, pilot):
            app.widget.open(run_folder)
            app.widget.focus()
            await until(pilot, lambda: "running" in app.shown and "reward" in app.shown)
            await press(pilot, "z", sees="paused")
            assert state() is RunState.paused
            before = len(steps)
            await pilot.pause(0.2)
            assert len(steps) == before
            await press(pilot, "z", sees=lambda: len(steps) > before + 3 and "running" in app.shown)
            await pilot.press("j")
            assert command_of(run_folder) is TrainingCommand.go_on and "the same key again" in app.notes[-1]
            await press(pilot, "j", sees="stopped")
    finally:
        ask(run_folder, TrainingCommand.stop)
        loop.join(60)
    assert not loop.is_alive() and state() is RunState.stopped


@pytest.mark.asyncio
async def test_a_run_that_failed_says_why_and_takes_no_wishes(tmp_path):
    report(tmp_path, 3, loss=1.0)
    write_status(tmp_path, "sft", RunState.failed, 3, "NotFiniteError: the loss is not finite")
    async with hosted(Training(), SIZE) as (app, pilot):
        app.widget.open(tmp_path)
        await until(pilot, "the loss is not finite")
        app.widget.focus()
        await pilot.press("z")
        assert not (tmp_path / CONTROL).exists() and app.notes == ["no run is going on here"]
