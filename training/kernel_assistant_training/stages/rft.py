"""Rejection fine-tuning: `python -m kernel_assistant_training rft --base FOLDER --out RUN [--trajectories RUN ...]`.

The model plays episodes, or earlier episodes are read. It is trained on episodes with a reward above 0, without loops
and without calls that cannot be parsed, by the trainer of `sft` and on exactly the tokens that were sampled.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from random import Random
from typing import Any

from kernel_assistant.errors import UsageError
from kernel_assistant_training.options.stages import RftArguments
from kernel_assistant_training.ppo.playing import episodes_of
from kernel_assistant_training.ppo.rollouts import figures_of
from kernel_assistant_training.ppo.updates.selection import SelectedTrajectories, choose, learned
from kernel_assistant_training.run_control import RunControl
from kernel_assistant_training.run_settings import claim_run
from kernel_assistant_training.stages.fine_tuning import FIGURES, asked_of, fit, trainer_of

STAGE = "rft"


def main(options: RftArguments) -> None:
    sys.stdout.write(json.dumps(train(options)) + "\n")


def train(options: RftArguments) -> dict[str, Any]:
    """Writes the model to `options.out`/model, resuming if possible. Returns `kept` and `left_out` (numbers of
    trajectories) and the metrics of `fit`. Raises UsageError for invalid options or no usable episode, MissingError if
    a package is missing, StoreError if a file cannot be written, and InternalError."""
    trainer_of(options)
    claim_run(options.out, asked_of(options, STAGE))
    chosen = _chosen(options)
    return {"kept": len(chosen.kept), "left_out": chosen.left_out, **_tuned(options, chosen)}


def _tuned(options: RftArguments, chosen: SelectedTrajectories) -> dict[str, Any]:
    """Trains in `model.partial`; returns metrics. The folder is renamed to `model` once training is complete; it is not
    renamed if training was stopped. Raises UsageError if no trajectory has tokens to learn."""
    partial, model = options.out / "model.partial", options.out / "model"
    if model.is_dir():
        return dict(json.loads((model / FIGURES).read_text(encoding="utf-8")))
    rows = [one for one in map(learned, chosen.kept) if any(one.learned)]
    if not rows:
        raise UsageError("no episode is fit to be learned from", "play more of them, or a better model")
    Random(options.seed).shuffle(rows)
    figures = fit(replace(options, out=partial), rows, STAGE, options.out)
    if (partial / FIGURES).is_file():
        partial.rename(model)
    return figures


def _chosen(options: RftArguments) -> SelectedTrajectories:
    """Plays or reads episodes and selects trajectories. Reports how many are kept, and how many are left out for each
    reason."""
    options.out.mkdir(parents=True, exist_ok=True)
    with RunControl(options.out, "trajectories", at_once=True) as control:
        trajectories = episodes_of(options)
        chosen = choose(trajectories, options.most_each)
        reasons = {f"left_out_{why}": count for why, count in chosen.left_out.items()}
        control.report(1, {**figures_of(trajectories), "kept": len(chosen.kept), **reasons})
    return chosen
