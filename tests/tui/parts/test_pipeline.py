"""Runs with several stages: folders as the pipeline writes them are found, read and watched."""

from __future__ import annotations

import pytest

from kernel_assistant.session.training_run import RunState, TrainingCommand, command_of, read_status, write_status
from kernel_assistant.session.training_stages import clock
from kernel_assistant_tui.runs.find import newest_runs
from kernel_assistant_tui.runs.pipeline import is_pipeline, log_lines, metrics_of, read_stages
from kernel_assistant_tui.widgets.stages import stage_lines
from kernel_assistant_tui.widgets.training import Training
from tests.tui.parts.hosting import hosted, press, until
from tests.tui.recorded_run import STAGES, report, write_run


async def click(app, pilot, words, sees):
    """Clicks on these words, then waits as `until`."""
    row = next(number for number, line in enumerate(app.rows) if words in line)
    await pilot.click(offset=(app.rows[row].index(words) + 1, row))
    await until(pilot, sees)


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "project" / "runs" / "first")


def test_stages_and_how_far_each_is(run):
    stages = read_stages(run, read_status(run))
    assert [(one.name, one.state) for one in stages] == list(
        zip(STAGES, ("done", "done", "limit", "running", "waiting"), strict=True)
    )
    assert [one.seconds for one in stages] == [30.0, 31.0, 32.0, 33.0, 0.0] and stages[0].limit == 65.0
    # Labels report inside a folder of theirs.
    assert metrics_of(stages[1].folder) == run / "02-label" / "labels" and metrics_of(stages[0].folder) is None
    assert log_lines(stages[0].folder) == ["first", "last words"] and log_lines(stages[4].folder) == []
    write_status(run, "ppo-single", RunState.stopped, 7, "interrupted")
    assert read_stages(run, read_status(run))[3].state == "stopped"
    assert read_stages(run, None)[3].state == "stopped"


def test_what_is_no_run_of_stages_is_none(run):
    (run / "04-ppo-single" / "run.json").write_text('{"stage": "ppo_single", "options": {}}')
    assert is_pipeline(run) and not is_pipeline(run / "04-ppo-single") and not is_pipeline(run.parent)
    (run / "run.json").write_text("{half")
    assert read_stages(run, None) == ()


def test_the_run_is_found_and_not_its_stages(run):
    report(run.parent / "single", 1, "sft", loss=1.0)
    found = newest_runs(run.parent.parent)
    assert {(one.path, one.state, one.stages) for one in found} == {
        (run, "running", "3 of 5 stages"),
        (run.parent / "single", "", ""),
    }


def test_stages_fit_in_lines_of_any_width(run, utf8):
    stages = read_stages(run, read_status(run))
    for width in (24, 40, 80, 160):
        for height in (10, 60):
            lines = [line.plain for line in stage_lines(stages, "pretrain", width, height)]
            assert all(len(line) <= width for line in lines)
            assert all(name in " ".join(lines) for name in STAGES)
    assert len(stage_lines(stages, "", 80, 60)) == len(STAGES) > len(stage_lines(stages, "", 80, 10))


def test_clocks():
    words = ["0 s", "59 s", "1:00", "59:59", "1:00:00", "10:01:01"]
    assert [clock(one) for one in (0, 59.4, 60, 3599, 3600, 36_061)] == words


@pytest.mark.asyncio
async def test_a_run_is_watched_stage_by_stage_and_asked_as_a_whole(run, monkeypatch):
    monkeypatch.setattr("kernel_assistant_tui.widgets.training.EVERY_S", 0.05)
    async with hosted(Training(), (100, 40)) as (app, pilot):
        app.widget.open(run)
        app.widget.focus()
        await until(pilot, "ppo-single figure  2.5")
        assert "first" in app.shown and "running" in app.shown and "2:06 of at most" in app.shown
        report(run / "04-ppo-single", 2, "ppo_single", reward=1.5)
        await until(pilot, "reward  1.5")
        await pilot.press("t")  # the next of those that have begun: the first
        await until(pilot, lambda: "synth: no figures;" in app.shown and "last words" in app.shown)
        await press(pilot, "t", "t", sees="pretrain figure  2.5")
        await press(pilot, "z", sees="asked to pause")
        assert command_of(run) is TrainingCommand.pause and command_of(run / "04-ppo-single") is TrainingCommand.go_on
        write_status(run, "ppo-single", RunState.failed, 7, "stage ppo-single failed (exit code 4)")
        await until(pilot, "exit code 4")


@pytest.mark.parametrize("height", [24, 40])
@pytest.mark.asyncio
async def test_a_click_on_a_stage_shows_its_curves(run, height):
    async with hosted(Training(), (100, height)) as (app, pilot):
        app.widget.open(run)
        await until(pilot, "ppo-single figure  2.5")
        await click(app, pilot, "pretrain", sees="pretrain figure  2.5")
        await click(app, pilot, "synth", sees="synth: no figures;")
        await click(app, pilot, "export", sees=lambda: app.notes == ["export has not begun"])
        await click(app, pilot, "last words", sees="synth: no figures;")
        await press(pilot, "t", sees="label figure  2.5")


@pytest.mark.asyncio
async def test_stages_of_a_run_without_recipe_are_gone_through_by_click_and_key(tmp_path):
    for stage in ("sft", "ppo"):
        report(tmp_path, 1, stage, **{f"{stage}_figure": 2.5})
    async with hosted(Training()) as (app, pilot):
        app.widget.open(tmp_path)
        await until(pilot, "ppo figure  2.5")
        await click(app, pilot, "sft", sees=lambda: "sft figure  2.5" in app.shown and "ppo figure" not in app.shown)
        app.widget.focus()
        await press(pilot, "t", sees="ppo figure  2.5")
        for size in ((30, 8), (1, 1), (100, 24)):
            await pilot.resize_terminal(*size)
        await until(pilot, "ppo figure  2.5")


@pytest.mark.asyncio
async def test_it_goes_on_with_the_stage_that_runs(run, monkeypatch):
    monkeypatch.setattr("kernel_assistant_tui.widgets.training.EVERY_S", 0.05)
    async with hosted(Training(), (70, 24)) as (app, pilot):
        app.widget.open(run)
        await until(pilot, "ppo-single figure  2.5")
        (run / "04-ppo-single" / "done").write_text('{"seconds": 40, "starts": 1, "how": "ended"}')
        (run / "05-export").mkdir()
        (run / "05-export" / "progress").write_text('{"seconds": 1, "starts": 1, "copied": 0}')
        (run / "05-export" / "output.log").write_text("writing the model\n")
        write_status(run, "export", RunState.running, 0)
        await until(pilot, "writing the model")
