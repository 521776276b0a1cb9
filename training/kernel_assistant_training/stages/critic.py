"""Critic pre-training: `python -m kernel_assistant_training critic --base FOLDER --out RUN [--trajectories RUN ...]`.

The value head of the model learns to predict the rewards of the model's episodes (½ MSE to GAE targets). The episodes
are played now, or read from the folders of `--trajectories`. The model itself does not change.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from kernel_assistant.errors import UsageError
from kernel_assistant_training.options.stages import CriticArguments
from kernel_assistant_training.ppo.arguments import model_of
from kernel_assistant_training.ppo.critic import CriticOptions, pretrain
from kernel_assistant_training.ppo.model.actor import Actor
from kernel_assistant_training.ppo.model.base import folder_of
from kernel_assistant_training.ppo.playing import episodes_of
from kernel_assistant_training.ppo.run_folder import PpoRunFolder, PpoState
from kernel_assistant_training.run_control import RunControl
from kernel_assistant_training.saving import naming

STAGE = "critic"


def main(options: CriticArguments) -> None:
    """Runs the stage and prints the folder of the newest checkpoint."""
    sys.stdout.write(f"{train(options)}\n")


def train(options: CriticArguments) -> Path:
    """Trains the critic; returns the folder of the newest checkpoint. Each epoch ends with a checkpoint, and a second
    start continues after the last one. Raises UsageError if there are no episodes or if the folder belongs to another
    run."""
    free = ("out", "epochs", "workers", "pool", "rows", "known")
    # Runs of earlier versions wrote lists.
    plain = {name: list(one) if isinstance(one, tuple) else one for name, one in vars(options).items()}
    asked = {name: str(value) for name, value in plain.items() if name not in free} | {"stage": STAGE}
    folder = PpoRunFolder(options.out, asked)
    known = folder.latest()
    base = folder_of(options.base)
    newest, state = known or (base, PpoState())
    asked_for = CriticOptions(
        epochs=options.epochs,
        rate=options.rate,
        budget=options.budget,
        lam=options.lam,
        share=options.share,
        seed=options.seed,
    )
    with RunControl(options.out, STAGE, at_once=True) as control, naming(folder.named):
        episodes = [one for one in episodes_of(options) if one.actions and not one.void]
        if not episodes:
            raise UsageError("there are no episodes", "name runs of rft or ppo-single: --trajectories, or leave it out")
        actor = Actor.load(newest, torch.device("cuda" if torch.cuda.is_available() else "cpu"), model_of(options))

        def report(epoch: int, figures: dict[str, float]) -> bool:
            nonlocal newest
            control.report(epoch, figures)
            if epoch > state.iteration:
                newest = folder.save(actor, base, PpoState(iteration=epoch, episodes=len(episodes)))
            return control.goes_on(epoch)

        pretrain(actor, episodes, asked_for, report, first=state.iteration)
    return newest
