"""Critic pre-training: `python -m kernel_assistant_training critic --base FOLDER --trajectories RUN ... --out RUN`.

The value head on the trunk of the model learns what episodes of this model came to: ½ MSE to GAE targets. The model
stays as it is.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from kernel_assistant.errors import UsageError
from kernel_assistant_training.ppo.actor import Actor
from kernel_assistant_training.ppo.critic import CriticOptions, pretrain
from kernel_assistant_training.ppo.run_folder import RunFolder, State
from kernel_assistant_training.ppo.store import TrajectoryStore
from kernel_assistant_training.run_control import RunControl

STAGE = "critic"


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="kernel_assistant_training critic", description=__doc__)
    found.add_argument("--base", type=Path, required=True, help="the model that played")
    found.add_argument("--trajectories", type=Path, nargs="+", required=True, help="folders of runs with its episodes")
    found.add_argument("--out", type=Path, required=True, help="the run's folder")
    found.add_argument("--epochs", type=int, default=10)
    found.add_argument("--rate", type=float, default=1e-3)
    found.add_argument("--budget", type=int, default=32768, help="padded tokens in one pass")
    found.add_argument("--lam", type=float, default=1.0, help="of the targets")
    found.add_argument("--seed", type=int, default=0)
    return found


def main(words: list[str]) -> None:
    """Ends with the folder, which is named."""
    sys.stdout.write(f"{train(parser().parse_args(words))}\n")


def train(options: argparse.Namespace) -> Path:
    """The newest checkpoint; there is one for each epoch, and a second start goes on behind it. Raises UsageError."""
    free = ("out", "epochs")
    asked = {name: str(value) for name, value in vars(options).items() if name not in free} | {"stage": STAGE}
    folder = RunFolder(options.out, asked)
    known = folder.latest()
    found = [one for run in options.trajectories for one in TrajectoryStore(run).all() if one.actions and not one.void]
    if not found:
        raise UsageError("the folders have no episodes", "name runs of rft or ppo_single: --trajectories")
    newest, state = known or (options.base, State())
    actor = Actor.load(newest, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    asked_for = CriticOptions(
        epochs=options.epochs, rate=options.rate, budget=options.budget, lam=options.lam, seed=options.seed
    )
    with RunControl(options.out, STAGE, at_once=True) as control, folder.naming():

        def report(epoch: int, figures: dict[str, float]) -> bool:
            nonlocal newest
            control.report(epoch, figures)
            if epoch > state.iteration:
                newest = folder.save(actor, options.base, State(iteration=epoch, episodes=len(found)))
            return control.goes_on(epoch)

        pretrain(actor, found, asked_for, report, first=state.iteration)
    return newest
