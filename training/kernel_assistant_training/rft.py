"""Rejection fine-tuning: `python -m kernel_assistant_training rft --base FOLDER --out RUN [--trajectories RUN ...]`.

The model plays, or episodes that were played before are taken; those with a reward above 0, without loops and without
calls that cannot be read are learned from, with the trainer of `sft` and the tokens as they were sampled.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from random import Random
from typing import Any

from kernel_assistant.errors import UsageError
from kernel_assistant_training.fine_tuning import FIGURES, TRAINERS, add_checkpoints, asked_of, fit, trainer_of
from kernel_assistant_training.ppo.arguments import add_play
from kernel_assistant_training.ppo.choosing import Chosen, choose, learned
from kernel_assistant_training.ppo.playing import episodes_of
from kernel_assistant_training.ppo.rollouts import figures_of
from kernel_assistant_training.ppo.run_folder import RunFolder
from kernel_assistant_training.run_control import RunControl

STAGE = "rft"
TURNS = 8


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="kernel_assistant_training rft", description=__doc__)
    add_play(found, TURNS)
    found.add_argument("--trajectories", type=Path, nargs="*", default=[], help="folders of runs, instead of playing")
    found.add_argument("--most-each", type=int, default=4, help="episodes of one task that are learned")
    found.add_argument("--trainer", choices=TRAINERS, default="trl", help="transformers needs accelerate alone")
    found.add_argument("--epochs", type=float, default=2.0)
    found.add_argument("--max-steps", dest="steps", type=int, default=-1)
    found.add_argument("--seconds", type=float, default=0.0, help="of training, at most")
    found.add_argument("--batch", type=int, default=32)
    found.add_argument("--accumulate", type=int, default=1)
    found.add_argument("--rate", type=float, default=1e-4)
    add_checkpoints(found)
    return found


def main(words: list[str]) -> None:
    sys.stdout.write(json.dumps(train(parser().parse_args(words))) + "\n")


def train(options: argparse.Namespace) -> dict[str, Any]:
    """Writes the folder `out`/model, from where it was; what was chosen and what training came to. Raises UsageError,
    MissingError, StoreError, InternalError."""
    trainer_of(options)
    RunFolder(options.out, asked_of(options, STAGE))
    chosen = _chosen(options)
    return {"kept": len(chosen.kept), "left_out": chosen.left_out, **_tuned(options, chosen)}


def _tuned(options: argparse.Namespace, chosen: Chosen) -> dict[str, Any]:
    """The folder has its name once it is whole; where somebody stopped it, it has not."""
    partial, model = options.out / "model.partial", options.out / "model"
    if model.is_dir():
        return dict(json.loads((model / FIGURES).read_text(encoding="utf-8")))
    rows = [one for one in map(learned, chosen.kept) if any(one.learned)]
    if not rows:
        raise UsageError("no episode is fit to be learned from", "play more of them, or a better model")
    Random(options.seed).shuffle(rows)
    figures = fit(argparse.Namespace(**{**vars(options), "out": partial}), rows, STAGE, options.out)
    if (partial / FIGURES).is_file():
        partial.rename(model)
    return figures


def _chosen(options: argparse.Namespace) -> Chosen:
    """With a line of metrics that says of what, and why others were left out."""
    options.out.mkdir(parents=True, exist_ok=True)
    with RunControl(options.out, "trajectories", at_once=True) as control:
        found = episodes_of(options)
        chosen = choose(found, options.most_each)
        reasons = {f"left_out_{why}": count for why, count in chosen.left_out.items()}
        control.report(1, {**figures_of(found), "kept": len(chosen.kept), **reasons})
    return chosen
