"""Stages one after another, and runs that are ended, killed, paused or fail."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from kernel_assistant.session.training_run import RunState, TrainingCommand, ask, read_status

pytestmark = [pytest.mark.lost, pytest.mark.slow]

RECIPE = """
about = "counts"
target = "cpu"
base = "scratch"
"""


def stage(name, limit=60, optional=False, **options):
    rest = "".join(f"{key} = {json.dumps(value)}\n" for key, value in options.items())
    head = f'[[stage]]\nname = "{name}"\nkind = "count"\nlimit = {limit}\noptional = {json.dumps(optional)}\n'
    return f"{head}[stage.options]\n{rest}\n"


@pytest.fixture
def run(tmp_path, own_state, monkeypatch, python_path):
    """Starts a pipeline in `tmp_path`/run; if it still runs at the end of the test, it is ended."""
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parent}:{python_path}")
    monkeypatch.setenv("KERNEL_ASSISTANT_TENSORBOARD", "0")
    begun = []

    def run(*stages, more=(), **how):
        (tmp_path / "recipe.toml").write_text(RECIPE + "".join(stages))
        words = ["--recipe", str(tmp_path / "recipe.toml"), "--out", str(tmp_path / "run"), *more]
        process = subprocess.Popen(
            [sys.executable, "-m", "counting", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how
        )
        begun.append(process)
        return process

    yield run
    for process in begun:
        if process.poll() is None:
            process.kill()
            process.communicate()


def ended(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def counted(folder):
    file = folder / "count"
    return int(file.read_text()) if file.is_file() else 0


def until(what, seconds=60.0):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)


def steps(folder):
    return [(one["stage"], one["step"]) for one in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())]


def test_stages_follow_one_another_and_are_not_repeated(run, tmp_path):
    folder = tmp_path / "run"
    code, out, err = ended(run(stage("first", to=3), stage("second", to=4)))
    assert code == 0, err
    assert [line.split(",")[0] for line in out.splitlines() if ": done" in line] == ["first: done", "second: done"]
    # What the first came to is what the second begins with.
    assert (folder / "02-second" / "model" / "config.json").read_text() == "7"
    assert steps(folder) == [("count", number) for number in (1, 2, 3, 1, 2, 3, 4)]
    assert read_status(folder).state is RunState.ended
    report = (folder / "report.md").read_text()
    assert "| first | done |" in report and "| second | reward | 25.0% | 100.0%" not in report
    assert "| second | reward | 0.25 | 1 | 4 |" in report and "| second | evaluations 10 |" in report
    before = (folder / "01-first" / "done").read_bytes()
    code, out, err = ended(run(stage("first", to=3), stage("second", to=4)))
    assert code == 0 and "running" not in out
    assert (folder / "01-first" / "done").read_bytes() == before


def test_until_and_from(run, tmp_path):
    folder, stages = tmp_path / "run", (stage("first", to=2), stage("second", to=3))
    code, out, _ = ended(run(*stages, more=["--until", "first"]))
    assert code == 0 and "go on: kernel-assistant train --recipe" in out
    assert not (folder / "02-second").exists() and read_status(folder).state is RunState.stopped
    code, _, err = ended(run(*stages, more=["--from", "third"]))
    assert code == 2 and "no stage 'third'" in err
    assert ended(run(*stages))[0] == 0
    code, out, _ = ended(run(*stages, more=["--from", "second"]))
    assert code == 0 and "first: running" not in out and "second: running" in out
    assert counted(folder / "before-1" / "02-second") == counted(folder / "02-second") == 3
    assert not (folder / "before-1" / "01-first").exists()


def test_another_recipe_is_refused_but_for_limits(run, tmp_path):
    assert ended(run(stage("first", to=2)))[0] == 0
    assert ended(run(stage("first", limit=90, to=2)))[0] == 0
    code, _, err = ended(run(stage("first", to=3)))
    assert code == 2 and "is a run with first.to 2, not 3" in err
    code, _, err = ended(run(stage("first", to=2), stage("second")))
    assert code == 2 and "stages 'first', not 'first, second'" in err
    code, _, err = ended(run(stage("first", to=2), more=["--seed", "5"]))
    assert code == 2 and "seed 0, not 5" in err


def test_words_are_read_before_anything_runs(run, tmp_path):
    code, _, err = ended(run(stage("first", to=2), stage("second", two=3)))
    assert code == 2 and "stage second: No such option '--two'" in err
    assert not (tmp_path / "run" / "01-first").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_ends_the_stage_and_the_run_goes_on(run, tmp_path, number, code):
    folder, stages = tmp_path / "run", (stage("first", to=2), stage("second", to=40, every=0.05))
    process = run(*stages)
    until(lambda: counted(folder / "02-second") >= 3)
    process.send_signal(number)
    found, out, err = ended(process)
    assert found == code and "the same command goes on" in err
    assert "interrupted; go on: kernel-assistant train --recipe" in out
    at = counted(folder / "02-second")
    assert 3 <= at < 40 and not (folder / "02-second" / "done").exists()
    assert read_status(folder).state is RunState.stopped
    assert ended(run(*stages))[0] == 0
    assert counted(folder / "02-second") == 40 and counted(folder / "01-first") == 2
    # It counted on: no step was taken twice.
    assert steps(folder)[2:] == [("count", number) for number in range(1, 41)]


def test_a_killed_pipeline_takes_its_stage_along(run, tmp_path):
    folder, stages = tmp_path / "run", (stage("first", to=30, every=0.05),)
    process = run(*stages)
    until(lambda: counted(folder / "01-first") >= 3)
    pid = read_status(folder / "01-first").pid
    process.kill()
    process.communicate()
    until(lambda: not psutil.pid_exists(pid))
    assert read_status(folder).state is RunState.died
    assert ended(run(*stages))[0] == 0
    assert counted(folder / "01-first") == 30


def test_a_killed_stage_fails_the_run_which_goes_on(run, tmp_path):
    folder, stages = tmp_path / "run", (stage("first", to=40, every=0.05),)
    process = run(*stages)
    until(lambda: counted(folder / "01-first") >= 3)
    os.kill(read_status(folder / "01-first").pid, signal.SIGKILL)
    code, _, err = ended(process)
    assert code == 137 and "stage first failed (exit code 137)" in err
    status = read_status(folder)
    assert (status.state, status.message) == (RunState.failed, "stage first failed (exit code 137)")
    assert ended(run(*stages))[0] == 0


def test_two_pipelines_do_not_work_in_one_folder(run, tmp_path):
    process = run(stage("first", to=100, every=0.05))
    until(lambda: counted(tmp_path / "run" / "01-first") >= 1)
    code, _, err = ended(run(stage("first", to=100, every=0.05)))
    assert code == 2 and f"is being worked on by process {process.pid}" in err
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == 143


def test_a_stage_that_fails_is_quoted(run, tmp_path):
    code, out, err = ended(run(stage("first", to=5, at=3, what="fail")))
    assert code == 4
    assert "the disk is made of cheese" in out and "output.log" in err
    assert "| first | begun |" in (tmp_path / "run" / "report.md").read_text()


def test_a_stage_is_stopped_at_its_limit(run, tmp_path):
    """Its output up to the limit counts, if it contains a model."""
    folder = tmp_path / "run"
    code, _, err = ended(run(stage("first", limit=2, to=1000, every=0.1)))
    assert code == 4 and "without a model" in err
    assert 2 <= counted(folder / "01-first") < 1000 and not (folder / "01-first" / "done").exists()


def test_an_optional_stage_is_passed_over_at_its_limit(run, tmp_path):
    folder = tmp_path / "run"
    more = stage("more", limit=1, optional=True, to=1000, every=0.1)
    code, out, err = ended(run(stage("first", to=3), more, stage("last", to=4)))
    assert code == 0, err
    assert "more: limit" in out and "| more | done, at its limit |" in (folder / "report.md").read_text()
    assert (folder / "03-last" / "model" / "config.json").read_text() == "7"


def test_a_stage_that_does_not_listen_is_killed_at_its_limit(run, tmp_path):
    code, _, err = ended(run(stage("first", limit=2, to=5, at=2, what="hang")))
    assert code == 137 and "was ended at its limit of 2 s and left no model" in err and "higher limit" in err


def test_a_full_disk_is_named_and_the_run_goes_on(run, tmp_path):
    """Files may not become larger than in the first steps, which has the effect of a full disk."""
    folder, stages = tmp_path / "run", (stage("first", to=30),)
    full = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (1500, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    code, _, err = ended(run(*stages, preexec_fn=full))
    assert code != 0 and "Traceback" not in err
    assert "first" in err and 1 <= counted(folder / "01-first") < 30
    assert ended(run(*stages))[0] == 0
    assert counted(folder / "01-first") == 30
    # The line that did not fit is the one that is missing.
    assert len(set(range(1, 31)) - {step for _, step in steps(folder)}) <= 1


def test_pause_and_stop_are_for_the_whole(run, tmp_path):
    folder, stages = tmp_path / "run", (stage("first", to=100, every=0.04), stage("second", to=2))
    process = run(*stages)
    until(lambda: counted(folder / "01-first") >= 2)
    ask(folder, TrainingCommand.pause)
    until(lambda: read_status(folder).state is RunState.paused)
    at, spent = counted(folder / "01-first"), json.loads((folder / "01-first" / "progress").read_text())["seconds"]
    time.sleep(1.5)
    assert counted(folder / "01-first") == at
    assert json.loads((folder / "01-first" / "progress").read_text())["seconds"] < spent + 1
    ask(folder, TrainingCommand.go_on)
    until(lambda: counted(folder / "01-first") > at)
    ask(folder, TrainingCommand.stop)
    code, out, _ = ended(process)
    assert code == 0 and "stopped; go on:" in out
    assert counted(folder / "01-first") < 100 and not (folder / "02-second").exists()
    assert ended(run(*stages))[0] == 0
    assert (folder / "02-second" / "model" / "config.json").read_text() == "102"
