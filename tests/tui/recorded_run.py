"""A run with several stages, written with the records of the pipeline itself."""

from __future__ import annotations

import json
import time

from kernel_assistant.session.training_run import METRICS, RunState, write_status
from kernel_assistant.session.training_stages import StageDone, StageProgress
from kernel_assistant_training.pipeline.recipe import Recipe, RecipeStage
from kernel_assistant_training.pipeline.run_folder import PipelineFolder

STAGES = ("synth", "label", "pretrain", "ppo-single", "export")


def report(folder, step, stage="ppo", **figures):
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / METRICS).open("a") as file:
        file.write(json.dumps({"stage": stage, "step": step, "time": time.time(), **figures}) + "\n")


def write_run(path):
    """Two stages are done, one was ended at its limit, and `ppo-single` runs in this process."""
    recipe = Recipe(target="cpu", stage=tuple(RecipeStage(name=name, limit=60.0 + len(name)) for name in STAGES))
    with PipelineFolder(path, recipe) as folder:
        for place, name in enumerate(STAGES[:4]):
            folder.folder(place).mkdir()
            folder.keep(place, StageProgress(seconds=30.0 + place, starts=1))
            if name != "ppo-single":
                how = "limit" if name == "pretrain" else "ended"
                folder.keep(place, StageDone(seconds=30.0 + place, starts=1, how=how))
            if name != "synth":
                report(folder.watched(place), 1, name.replace("-", "_"), **{f"{name}_figure": 2.5, "reward": 1.0})
    (path / "01-synth" / "output.log").write_text("first\nlast words\n")
    write_status(path, "ppo-single", RunState.running, 7)
    return path
