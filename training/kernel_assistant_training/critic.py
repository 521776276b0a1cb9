"""Critic pre-training: `python -m kernel_assistant_training critic --base FOLDER --out RUN [--trajectories RUN ...]`.

The value head on the trunk of the model learns what episodes of this model came to, which it plays, or which are there:
½ MSE to GAE targets. The model stays as it is.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from kernel_assistant.errors import UsageError
from kernel_assistant_training.ppo.actor import Actor
from kernel_assistant_training.ppo.arguments import add_play
from kernel_assistant_training.ppo.base import folder_of
from kernel_assistant_training.ppo.critic import CriticOptions, pretrain
from kernel_assistant_training.ppo.model_arguments import model_of
from kernel_assistant_training.ppo.playing import episodes_of
from kernel_assistant_training.ppo.run_folder import RunFolder, State
from kernel_assistant_training.run_control import RunControl
from kernel_assistant_training.saving import naming

STAGE = "critic"
TURNS = 8


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="kernel_assistant_training critic", description=__doc__)
    add_play(found, TURNS)
    found.add_argument("--trajectories", type=Path, nargs="*", default=[], help="folders of runs, instead of playing")
    found.add_argument("--epochs", type=int, default=10)
    found.add_argument("--rate", type=float, default=1e-3)
    found.add_argument("--budget", type=int, default=32768, help="padded tokens in one pass")
    found.add_argument("--lam", type=float, default=1.0, help="of the targets")
    found.add_argument("--share", type=float, default=0.2, help="of the tasks, which are kept aside")
    return found


def main(words: list[str]) -> None:
    """Ends with the folder, which is named."""
    sys.stdout.write(f"{train(parser().parse_args(words))}\n")


def train(options: argparse.Namespace) -> Path:
    """The newest checkpoint; there is one for each epoch, and a second start goes on behind it. Raises UsageError."""
    free = ("out", "epochs", "workers", "pool", "rows", "known")
    asked = {name: str(value) for name, value in vars(options).items() if name not in free} | {"stage": STAGE}
    folder = RunFolder(options.out, asked)
    known = folder.latest()
    base = folder_of(options.base)
    newest, state = known or (base, State())
    asked_for = CriticOptions(
        epochs=options.epochs,
        rate=options.rate,
        budget=options.budget,
        lam=options.lam,
        share=options.share,
        seed=options.seed,
    )
    with RunControl(options.out, STAGE, at_once=True) as control, naming(folder.named):
        found = [one for one in episodes_of(options) if one.actions and not one.void]
        if not found:
            raise UsageError("there are no episodes", "name runs of rft or ppo-single: --trajectories, or leave it out")
        actor = Actor.load(newest, torch.device("cuda" if torch.cuda.is_available() else "cpu"), model_of(options))

        def report(epoch: int, figures: dict[str, float]) -> bool:
            nonlocal newest
            control.report(epoch, figures)
            if epoch > state.iteration:
                newest = folder.save(actor, base, State(iteration=epoch, episodes=len(found)))
            return control.goes_on(epoch)

        pretrain(actor, found, asked_for, report, first=state.iteration)
    return newest
