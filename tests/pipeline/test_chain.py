"""All stages of a recipe, few steps each: the files that the run leaves for watching it, for going on and for using
its model. What stages learn: `tests/learning/`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kernel_assistant.session.training_run import RunState, read_status
from kernel_assistant.session.training_stages import DONE, PROGRESS
from kernel_assistant_training.pipeline.recipe import load
from tests.common.chain import MOST, run_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(MOST)]

RECIPE = Path(__file__).with_name("few_steps.toml")


@pytest.fixture(scope="module")
def run(tmp_path_factory, python_path):
    return run_of(str(RECIPE), tmp_path_factory.mktemp("chain"), python_path, "--base", "shipped")


def again(run, *words):
    """The same command, in the home of the run."""
    command = [sys.executable, "-m", "kernel_assistant", *words]
    environment = {**os.environ, "KERNEL_ASSISTANT_HOME": str(run.parent / "home")}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)


@pytest.fixture
def path(monkeypatch, python_path):
    monkeypatch.setenv("PYTHONPATH", python_path)


def test_every_stage_is_over_and_left_what_the_next_began_with(run):
    stages = load(str(RECIPE)).stage
    found = {}
    for number, stage in enumerate(stages, 1):
        folder = run / f"{number:02}-{stage.name}"
        done = json.loads((folder / DONE).read_text())
        assert done["how"] == "ended" and done["starts"] == 1, (stage.name, done)
        assert done["seconds"] == pytest.approx(json.loads((folder / PROGRESS).read_text())["seconds"], abs=0.1)
        found[stage.name] = done["model"]
    with_model = {name for name, model in found.items() if model}
    assert with_model == {"pretrain", "sft", "ppo-single", "rft", "critic", "ppo-agent"}
    for name, after in (("pretrain", "sft"), ("ppo-single", "rft"), ("critic", "ppo-agent")):
        number = [stage.name for stage in stages].index(after) + 1
        asked = json.loads((run / f"{number:02}-{after}" / "run.json").read_text())
        command = json.loads((run / f"{number:02}-{after}" / "output.log").read_text().splitlines()[0])["command"]
        assert command[command.index("--base") + 1] == str(run / found[name])
        assert asked["stage"] == after.replace("-", "_")


def test_it_can_be_watched_as_a_whole(run):
    status = read_status(run)
    assert (status.state, status.stage) == (RunState.ended, "export")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    expected = ["pretrain", "sft", "ppo_single", "rft", "critic", "ppo_agent", "eval"]
    assert [one for one in dict.fromkeys(line["stage"] for line in lines) if one in expected] == expected
    own = [line for folder in run.glob("0*-ppo-*") for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert own and set(own) <= set((run / "metrics.jsonl").read_text().splitlines())


def test_the_report_has_figures_and_evaluations(run):
    text = (run / "report.md").read_text()
    rows = ("| sft | done |", "| ppo-single | held_out_reward |", "| eval | 05-sft |")
    said = (*rows, "## Held-out tasks", "commit", "tensorboard --logdir")
    assert [one for one in said if one not in text] == []


def test_what_was_judged_is_not_judged_again(run):
    def judged(stage):
        (folder,) = run.glob(f"??-{stage}")
        lines = map(json.loads, (folder / "evaluations.jsonl").read_text().splitlines())
        return [(one["task"], one["evaluation"]["candidate"], one["evaluation"]["tier"]) for one in lines]

    found = [*judged("ppo-single"), *judged("rft"), *judged("ppo-agent")]
    assert judged("ppo-single") and len(set(found)) == len(found)


def test_the_model_is_registered_and_not_in_use(run, path):
    registered = tomllib.loads((run.parent / "home" / "config" / "models.toml").read_text())
    (model,) = run.glob("??-export/*.gguf")
    assert registered["run"]["where"] == str(model) and registered["run"]["compact"]
    listed = json.loads(again(run, "models", "list", "--json").stdout)
    assert listed["used"] == "shipped" and {one["name"] for one in listed["models"]} == {"shipped", "run"}


def test_the_same_command_has_nothing_left_to_do(run, path):
    before = {file: file.stat().st_mtime_ns for file in run.glob("*/done")}
    found = again(run, "train", "--recipe", str(RECIPE), "--out", str(run))
    assert found.returncode == 0 and "running" not in found.stdout, found.stdout + found.stderr
    assert {file: file.stat().st_mtime_ns for file in run.glob("*/done")} == before
    other = again(run, "train", "--recipe", str(RECIPE), "--out", str(run), "--seed", "7")
    assert other.returncode == 2 and "is a run with seed 0, not 7" in other.stderr
