"""The files of a run byte for byte: the terminal and runs of earlier versions read them."""

from __future__ import annotations

import json
import re

from kernel_assistant.session.training_run import RunState, TrainingCommand, ask, write_status
from kernel_assistant.session.training_stages import StageDone, StageProgress
from kernel_assistant_training.pipeline.recipe import Recipe, RecipeStage
from kernel_assistant_training.pipeline.run_folder import PipelineFolder
from kernel_assistant_training.run_control import RunControl
from kernel_assistant_training.tracking.metrics import copy_metrics, read_metrics


def test_status_control_and_metrics(tmp_path):
    write_status(tmp_path, "sft", RunState.failed, 7, "no room")
    status = (tmp_path / "status.json").read_text()
    assert re.fullmatch(
        r'\{"stage":"sft","state":"failed","step":7,"message":"no room","pid":\d+,"host":"[^"]*","time":[\d.]+\}',
        status,
    )
    for command, text in ((TrainingCommand.pause, "pause\n"), (TrainingCommand.stop, "stop\n")):
        ask(tmp_path, command)
        assert (tmp_path / "control").read_text() == text
    ask(tmp_path, TrainingCommand.go_on)
    assert not (tmp_path / "control").exists()
    with RunControl(tmp_path, "sft") as control:
        control.report(3, {"loss": 0.5, "tokens": 7, "note": "x", "bad": float("inf")})
    line = (tmp_path / "metrics.jsonl").read_text()
    assert re.fullmatch(r'\{"stage": "sft", "step": 3, "time": [\d.]+, "loss": 0.5, "tokens": 7, "note": "x"\}\n', line)


def test_the_records_of_a_pipeline(tmp_path):
    stage = RecipeStage(name="more", kind="episodes", limit=60.0, options={"seconds": 9, "only": ["a"]})
    with PipelineFolder(tmp_path, Recipe(target="cpu", stage=(stage, RecipeStage(name="sft", limit=5.0)))) as run:
        run.folder(0).mkdir()
        run.keep(0, StageProgress(seconds=1.5, starts=2, copied=30))
        run.keep(0, StageDone(seconds=1.5, starts=2, how="limit", model="01-more", result={"a": 1}))
    common = {"of": "", "choose": "", "models": [], "optional": False}
    more = {"name": "more", "limit": 60.0, "kind": "episodes", **common, "options": {"seconds": 9, "only": ["a"]}}
    sft = {"name": "sft", "limit": 5.0, "kind": "sft", **common, "options": {}}
    rest = {"about": "", "base": "scratch", "seed": 0, "gpus": 1, "threads": 0}
    expected = json.dumps({"target": "cpu", "stage": [more, sft], **rest}, indent=1) + "\n"
    assert (tmp_path / "run.json").read_text() == expected
    assert (tmp_path / "01-more" / "progress").read_text() == '{"seconds":1.5,"starts":2,"copied":30}'
    assert (tmp_path / "01-more" / "done").read_text() == (
        '{"seconds":1.5,"starts":2,"how":"limit","model":"01-more","result":{"a":1}}'
    )


def test_metrics_are_copied_once_and_whole(tmp_path):
    stage, run = tmp_path / "stage", tmp_path / "run"
    stage.mkdir()
    run.mkdir()
    assert copy_metrics(stage, run, 0) == (0, [])
    first = '{"stage": "sft", "step": 1, "time": 1.0, "loss": 2.0}\n'
    (stage / "metrics.jsonl").write_text(first + '{"stage": "sft", "st')
    at, lines = copy_metrics(stage, run, 0)
    assert (at, [one["loss"] for one in lines]) == (len(first), [2.0])
    assert copy_metrics(stage, run, at) == (at, [])
    second = first.replace("1", "2")
    (stage / "metrics.jsonl").write_text(first + second)
    assert copy_metrics(stage, run, at)[0] == len(first + second)
    assert (run / "metrics.jsonl").read_text() == first + second
    # A file that became shorter is another one.
    (stage / "metrics.jsonl").write_text(second)
    assert copy_metrics(stage, run, len(first + second))[0] == len(second)
    assert len(read_metrics(run)) == 3
