"""Tests the content of recipes, the models from which stages start, and the plan of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from kernel_assistant.errors import UsageError
from kernel_assistant.session.training_stages import StageDone, StageProgress, stage_folder
from kernel_assistant_training.pipeline import inputs
from kernel_assistant_training.pipeline.kinds import words
from kernel_assistant_training.pipeline.recipe import RECIPES, Recipe, RecipeStage, load
from kernel_assistant_training.pipeline.run_folder import PipelineFolder
from kernel_assistant_training.tracking import EVALUATED

SFT = 'target = "cpu"\n[[stage]]\nname = "sft"\nlimit = 9\n'


def recipe(*stages, **rest):
    return Recipe(target="cpu", stage=stages, **rest)


def stage(name, limit=60.0, **rest):
    return RecipeStage(name=name, limit=limit, **rest)


@pytest.mark.parametrize("name", sorted(path.stem for path in RECIPES.glob("*.toml")))
def test_those_of_the_package_fit(name):
    found = load(name)
    inputs.check(msgspec.structs.replace(found, base="shipped"))
    assert found.about and found.stage[-1].kind == "export"
    # 25 minutes, including the time that stages take to end after their limits.
    assert name != "small" or found.limit <= 1460


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('target = "cpu"', "stage"),
        ('target = "gpu"\n[[stage]]\nname = "sft"\nlimit = 1', "Invalid enum value 'gpu' - at `$.target`"),
        ('target = "cpu"\n[[stage]]\nname = "sfd"\nlimit = 1', "no kind 'sfd' (did you mean sft?)"),
        ('target = "cpu"\n[[stage]]\nname = "sft"\nlimit = 1\nlimits = 2', "limits"),
        ('target = "cpu"\n[[stage]]\nname = "sft"\nlimit = 0', "Expected `float` > 0.0 - at `$.stage[0].limit`"),
        (f"{SFT}options = {{ seconds = 9 }}", "does not end before its limit"),
        (f'{SFT}of = "rft"', "'rft' is no stage before it"),
        (f'{SFT}models = ["start"]', "are for eval stages"),
        ('target = "cpu"\n' + '[[stage]]\nname = "sft"\nlimit = 9\n' * 2, "each of another name"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, text, said):
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as found:
        load(str(file))
    assert said in found.value.cause and str(file) in found.value.cause


def test_a_name_that_is_none_is_told_the_nearest():
    with pytest.raises(UsageError, match=r"no recipe 'smal' \(did you mean small\?\)"):
        load("smal")


def test_a_stage_without_a_start_is_refused():
    with pytest.raises(UsageError, match="stage sft has no model to start from"):
        inputs.check(recipe(stage("episodes"), stage("sft")))
    inputs.check(recipe(stage("episodes"), stage("sft"), base="shipped"))
    with pytest.raises(UsageError, match="stage sft has no episodes to start from"):
        inputs.check(recipe(stage("sft"), base="shipped"))
    with pytest.raises(UsageError, match="no eval stage is before it"):
        inputs.check(recipe(stage("export", choose="pass_rate"), base="shipped"))


def test_words():
    asked = {"out": Path("run"), "rate": 2e-4, "resume": True, "shards": False, "base": None, "files": ["a", "b"]}
    assert words(asked) == ["--out", "run", "--rate", "0.0002", "--resume", "--files", "a", "b"]


def finished(run, place, model="", **rest):
    run.folder(place).mkdir()
    run.keep(place, StageProgress())
    run.keep(place, StageDone(seconds=1.0, starts=1, how="ended", model=model, **rest))


def test_each_stage_starts_from_what_is_before_it(tmp_path):
    more = stage("more", kind="episodes", limit=100.0, options={"target": "cuda", "seconds": 90})
    agent = stage("ppo-agent", of="pretrain", options={"known": ["{rft}/evaluations.jsonl", "x"]})
    made = (stage("synth"), stage("pretrain"), stage("episodes"), more, stage("sft"))
    asked = recipe(*made, stage("rft", options={"shards": False}), stage("critic"), agent, gpus=2, seed=3)
    inputs.check(asked)
    with PipelineFolder(tmp_path / "run", asked) as run:
        assert inputs.given(run, 1) == {"out": run.folder(1), "seed": 3, "base": None}
        finished(run, 1, "02-pretrain/model")
        played = inputs.command(run, 3, 30.0, "x")
        # What is left of the limit of 100 seconds, 15 of which are for beginning and ending.
        assert played[played.index("--seconds") + 1] == "55.0" and played[played.index("--target") + 1] == "cuda"
        for place in (2, 3):
            finished(run, place)
            (run.folder(place) / "episodes-cpu-00.jsonl").touch()
        files = [run.folder(place) / "episodes-cpu-00.jsonl" for place in (2, 3)]
        base = run.path / "02-pretrain" / "model"
        assert inputs.given(run, 4) == {"out": run.folder(4), "seed": 3, "base": base, "episodes": files}
        finished(run, 4, "05-sft")
        assert "--shards" not in inputs.command(run, 5, 0.0, "x")
        finished(run, 5, "06-rft/model")
        (run.folder(5) / "evaluations.jsonl").touch()
        asked_for = inputs.given(run, 6)
        assert asked_for["known"] == [run.folder(5) / "evaluations.jsonl"]
        assert (asked_for["base"], asked_for["trajectories"]) == (run.path / "06-rft" / "model", run.folder(5))
        assert "--shards" not in inputs.command(run, 7, 0.0, "x")
        finished(run, 0)
        (run.folder(0) / "tasks-00000.parquet").touch()
        command = inputs.command(run, 7, 0.0, "x")
        launcher = "-m accelerate.commands.launch --num_processes 2 -m kernel_assistant_training"
        assert command[1:7] == launcher.split()
        assert command[command.index("--base") + 1] == str(base)
        assert command[command.index("--shards") + 1] == str(run.folder(0))
        assert command[command.index("--known") + 1 :] == [f"{run.folder(5)}/evaluations.jsonl", "x"]


def test_the_best_model_is_exported(tmp_path):
    tuned = (stage("sft", options={"episodes": ["x"]}), stage("rft"), stage("eval", models=("start", "sft", "rft")))
    asked = recipe(*tuned, stage("export", choose="pass_rate"), base=str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    inputs.check(asked)
    with PipelineFolder(tmp_path / "run", asked) as run:
        finished(run, 0, "01-sft")
        finished(run, 1, "02-rft/model")
        models = [tmp_path, run.path / "01-sft", run.path / "02-rft" / "model"]
        assert inputs.given(run, 2)["base"] == models
        finished(run, 2)

        def found(*rates):
            lines = [json.dumps({"checkpoint": number, "pass_rate": one}) for number, one in enumerate(rates)]
            (run.folder(2) / EVALUATED).write_text("\n".join(lines))
            return inputs.command(run, 3, 0.0, "mine")[4:]

        target = str(run.folder(3) / "mine.gguf")
        assert found(0.5, 0.7, 0.6) == [str(models[1]), target]
        assert found(0.7, 0.7, 0.6) == [str(models[1]), target]  # of equals the latest
        assert found(0.9, 0.7, 0.6) == [str(models[0]), target]
        (run.folder(2) / EVALUATED).unlink()
        with pytest.raises(UsageError, match="no eval stage gave 'pass_rate'"):
            inputs.command(run, 3, 0.0, "mine")


@pytest.fixture
def train(own_state):
    """A function: words → the ended process of `kernel-assistant train` with these words."""

    def train(*words):
        command = [sys.executable, "-m", "kernel_assistant", "train", *words]
        return subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=200, check=False)

    return train


def test_help_names_the_stages(train):
    asked = train("--help")
    assert asked.returncode == 0
    assert all(name in asked.stdout for name in ("ppo-single", "rft", "critic", "ppo-agent"))
    unknown = train("ppo")
    assert unknown.returncode == 2 and "ppo-single" in unknown.stderr


@pytest.mark.slow
def test_a_plan_and_a_stages_help_are_made_without_running_anything(train, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = train("--recipe", "small", "--dry-run")
    assert found.returncode == 0, found.stderr
    folders = [Path(word) for line in found.stdout.splitlines() for word in line.split() if word.startswith("run/")]
    assert folders == [stage_folder(Path("run"), *one) for one in enumerate(one.name for one in load("small").stage)]
    assert "train eval --tasks 80 --attempts 4" in found.stdout
    single = train("ppo-single", "--base", "x", "--out", "y", "--target", "cpu", "--iterations", "3", "--dry-run")
    assert single.returncode == 0
    assert {"  --base x", "  --iterations 3", "  --seed 0"} <= set(single.stdout.splitlines())
    help_of_stage = train("critic", "--help")
    assert help_of_stage.returncode == 0 and "--trajectories" in help_of_stage.stdout
    wrong = train("ppo-single", "--iteration", "x", "--dry-run")
    assert wrong.returncode == 2 and "Traceback" not in wrong.stderr
    assert list(tmp_path.iterdir()) == [tmp_path / "home"]
    for given, said in (((), "neither a recipe nor a stage"), (("--recipe", "small"), "a run needs a folder")):
        refused = train(*given)
        assert refused.returncode == 2 and said in refused.stderr
